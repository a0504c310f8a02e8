"""A small healthy project, in which tests of the checks plant their faults."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_chapters
from check_chapters import chapter_budget, chapter_tree
from house import ROOT

BANNERS = "\n".join(
    f"// ---- {i}. {name} " + "-" * 60 + f"\nint {name}_;\n"
    for i, name in enumerate(chapter_budget.SECTIONS, 1)
)
MAIN = '// A lesson.\n#include "common/b.h"\n' + BANNERS
MARKS = "<!-- diff:begin -->\n<!-- diff:end -->\n"
TLDR = "> - One.\n> - Two.\n> - Three.\n\n"
README = "# A lesson\n\n" + TLDR + "\n\ntext\n\n".join(check_chapters.SECTIONS) + "\n"
WITH_DIFF = README.replace("## The diff\n", "## The diff\n\n" + MARKS)

TREE = "01_sgd\n│\n02_adamw"

HEALTHY = {
    "README.md": f"# Ladder\n\n{chapter_tree.BEGIN}\n```\n{TREE}\n```\n{chapter_tree.END}\n",
    "kernels/a.h": "// A.\n#pragma once\n",
    "kernels/CMakeLists.txt": "add_library(floor0 a.cpp)\n",
    "common/b.h": '// B.\n#pragma once\n#include "kernels/a.h"\n',
    "common/CMakeLists.txt": "add_library(floor1 b.cpp)\ntarget_link_libraries(floor1 floor0)\n",
    "chapters/01_sgd/main.cpp": MAIN,
    "chapters/01_sgd/README.md": README,
    "chapters/02_adamw/adamw.h": '// C.\n#pragma once\n#include "common/b.h"\n',
    "chapters/02_adamw/main.cpp": MAIN.replace("int step_;", "int step_, more;"),
    "chapters/02_adamw/README.md": WITH_DIFF,
}


class Tree(unittest.TestCase):
    """A small healthy project in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in HEALTHY.items():
            self.plant(name, text)
        (self.root / "scripts").mkdir()
        for name in ["chapters.txt", "chapter_diff.sh", "chapter_quotes.py"]:
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        shutil.copy(ROOT / ".clang-format", self.root)
        self.diff("--embed")

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def diff(self, *arguments):
        command = ["bash", self.root / "scripts/chapter_diff.sh", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def assert_caught(self, check, words):
        """The check finds one fault, and says these words."""
        faults = check(self.root)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(words, faults[0])
