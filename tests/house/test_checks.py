#!/usr/bin/env python3
"""The checks of the house are checked: each passes a small healthy project, and in it catches the faults
that are planted here, one at a time."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_chapters
import check_format
import check_glossary
import check_includes
import check_math
import check_text
from check_chapters import chapter_budget, chapter_diff, chapter_tree
from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import front_page  # noqa: E402
import pictures  # noqa: E402

CHECKS = [check_chapters, check_format, check_glossary, check_includes, check_math, check_text]
MAIN = '// A lesson.\n#include "common/b.h"\n' + "".join(
    f"\n// ---- {i}. {name} " + "-" * 60 + f"\nint {name}_;\n" for i, name in enumerate(chapter_budget.SECTIONS, 1))
README = "# A lesson\n\n> - One.\n> - Two.\n> - Three.\n\n" + "\n\ntext\n\n".join(check_chapters.SECTIONS) + "\n"
README = README.replace("text", "**A way through.** a\n\n**Elsewhere.** b", 1)
EXERCISES = "\n1. ★ (10 min) Do.\n\n   *Check.* `true`\n\n2. ★★★ (90 min) Do.\n"
ONE, TWO = "chapters/01_sgd/", "chapters/02_adamw/"
HEALTHY = {
    "README.md": "# Ladder\n\n<!-- tree:begin -->\n<!-- tree:end -->\n",
    "docs/glossary.md": "# Words\n\n- **micro-batch**: m.\n- **`Arena`, leaf**: a.\n",
    "docs/running.md": "All others, 02, run on one rank.\n",
    "docs/page.md": f"<!-- quote: {TWO}adamw.h | int x -->\n<!-- quote:end -->\n",
    "kernels/a.h": "// Arena: a leaf of micro-batches.\n#pragma once\nclass Arena {};\nclass Later;\n/// A.\nstruct A {};\n",
    "kernels/cuda/native/launch.h": "// L.\n#pragma once\n",
    "kernels/cuda/on_cpu/launch.h": "// L.\n#pragma once\n",
    "kernels/cuda/k.cu": '// K.\n#include "launch.h"\nfloat f(float x) { return expf(x); }\n',
    "kernels/cpu/k.cpp": "Vec f(Vec v) { return exp(v); }  // std::exp\n",
    "common/b.h": '// B.\n#pragma once\n#include "kernels/a.h"\n',
    "common/b.cpp": "RunLog log(o);\ndouble x = math::exp(std::sqrt(y));\n",
    ONE + "main.cpp": MAIN,
    ONE + "README.md": README.replace("## Exercises\n", "## Exercises\n" + EXERCISES) + "\n```\n## No heading\n```\n",
    TWO + "adamw.h": '// C.\n#pragma once\n#include "common/b.h"\nint x;\nvoid f() {\n  if (x) {\n    x = 1;\n  }\n}\n',
    TWO + "main.cpp": MAIN.replace("int step_;", "int step_, more;  // \"\\n\" & \\\\") + "// o.run.refuse_ranks();\n",
    TWO + "README.md": README.replace("## The diff\n", "## The diff\n\n<!-- diff:begin -->\n<!-- diff:end -->\n\n"
                                      f"<!-- quote: {TWO}adamw.h | if (x) ... {{}} -->\n<!-- quote:end -->\n"),
    "scripts/s.sh": "#!/usr/bin/env bash\n",
    "scripts/chapters.txt": "01_sgd - 300 0 changed\n02_adamw 01_sgd 300 120 changed\n",
    "tests/t.h": "// T.\n#pragma once\n",
}
MANY = "".join(f"int v{i};\n" for i in range(118))

# (check, file, what is replaced by what or a new text, what is said of it)
FAULTS = [
    (check_includes, "kernels/a.h", ("#pragma once", '#include "common/b.h"'), "kernels may not know common/b.h"),
    (check_includes, "common/bad.h", f'#include "{TWO}adamw.h"\n', "common may not know chapters/"),
    (check_includes, ONE + "bad.h", f'#include "{TWO}adamw.h"\n', "01_sgd may not know"),
    (check_includes, "common/bad.h", '#include "tests/t.h"\n', "common may not know tests/t.h"),
    (check_includes, "common/bad.h", '#include "b.h"\n', "seen from the root"),
    (check_includes, "kernels/bad.h", '#include "kernels/../common/b.h"\n', "seen from the root"),
    (check_includes, "kernels/k.cpp", '#include "launch.h"\n', '"launch.h" is no file'),
    (check_includes, "common/bad.h", "#  include <kernels/a.h>\n", "quotes"),
    (check_includes, "kernels/a.h", ("#pragma once", '#include "kernels/a.h"'), "circle: kernels/a.h -> kernels/a.h"),
    (check_includes, "kernels/x/x.h", '#include "kernels/cuda/native/launch.h"\n', None),
    (check_math, "kernels/cpu/k.cpp", "x = std::exp(y);\n", ":1: std::exp has other bits elsewhere"),
    (check_math, "kernels/cpu/k.cpp", "x = powf(y, z);\n", ":1: powf has"),
    (check_math, "common/b.cpp", "\nreturn -cos(x);\n", ":2: cos has"),
    (check_math, "kernels/cuda/k.cu", "\nint n = std::bit_width(x);\n", ":2: nvcc makes a constant of std::bit_width"),
    (check_math, TWO + "adamw.h", ("x = 1", "x = ::tanh (x)"), ":7: ::tanh has"),
    (check_text, "docs/x.md", "Short. " + "word " * 41 + ". Short.\n", "docs/x.md: 41 words: word word"),
    (check_text, "docs/x.md", f"{'word ' * 30}, 1.5 [{'word ' * 20}](a/b)\n", "words: word"),
    (check_text, "docs/x.md", f"{'word ' * 30}. {'word ' * 30}a\n- {'word ' * 30} `{'a ' * 60}` | {'word ' * 30}a\n", None),
    (check_text, "docs/x.md", r"Say $B\,T$." + "\n", r"the backslash of \, in"),
    (check_text, "docs/x.md", "$$\na \\\\ b\n$$\n", "GitHub loses"),
    (check_text, "docs/x.md", "$B\\ T$ and `$a\\,b$` and \\$3 \\* 4 and $\\Vert g\\Vert$\n", None),
    (check_glossary, "kernels/a.h", ("leaf of micro-batches", "cloverleaf, micro-batching"), ["nobody says micro-batch", "nobody says leaf"]),
    (check_glossary, "docs/glossary.md", "- **micro-batch**: m\n- **`Arena`, Micro-batch**: b\n", "micro-batch stands there twice"),
    (check_glossary, "docs/glossary.md", "# Words\n", "missing, or without words"),
    (check_glossary, "kernels/a.h", ("/// A.\n", ""), "kernels/a.h: A is not in the glossary, and has no ///"),
    (check_glossary, "kernels/a.h", ("struct A {", "enum class [[nodiscard]] A : int {"), None),
    (check_glossary, "kernels/x.h", "// T.\ntemplate <class T>\nclass [[x]] X final : public A {};\n", "X is not in"),
    (check_text, "common/b.cpp", "int\tx;\n", "b.cpp:1: tab"),
    (check_text, "docs/page.md", "word \n", "page.md:1: blanks"),
    (check_text, "docs/page.md", "word", "one line end"),
    (check_text, "docs/page.md", "word\n\n", "one line end"),
    (check_text, "kernels/a.h", "#pragma once\n", "no comment"),
    (check_text, "tests/t.sh", "if true; then\n", ["t.sh", "syntax error"]),
    (check_text, "scripts/new.sh", "true\n", "new.sh: not executable"),
    (check_format, "common/b.cpp", "int   x  ;\n", "common/b.cpp: clang-format would change it"),
    (check_chapters, ONE + "README.md", None, "01_sgd/README.md: missing"),
    (check_chapters, ONE + "README.md", ("## The idea", "## An idea"), "wants these sections"),
    (check_chapters, ONE + "README.md", ("> - Two.\n", ""), "01_sgd/README.md: wants three lines"),
    (check_chapters, ONE + "README.md", ("## The diff", "**Types you will meet**\n\n- `Arena`: is\n- `Gone`: not\n\n## The diff"), "box of types: - `Gone`: not"),
    (check_chapters, ONE + "README.md", ("1. ★ (10 min) ", "1. "), "exercise 1 wants to begin with stars"),
    (check_chapters, ONE + "README.md", ("*Check.*", "Check."), "0 of 2 exercises say how to check them"),
    (check_chapters, "scripts/chapters.txt", HEALTHY["scripts/chapters.txt"][:23], ["02_adamw: not in scripts/chapters.txt", "stale"]),
    (check_chapters, "docs/running.md", ("02", "01 to 02"), "says that 01 runs on one rank"),
    (check_chapters, ONE + "main.cpp", ("4. data", "4. date"), ["six banners", "stale"]),
    (check_chapters, ONE + "main.cpp", ("int data_;\n", MANY * 3), ["359 lines of code, budget 300", "changed lines", "stale"]),
    (check_chapters, TWO + "main.cpp", ("int data_;\n", MANY), ["121 changed lines, budget 120", "stale"]),
    (check_chapters, TWO + "main.cpp", ("more", "less"), "02_adamw/README.md: stale; scripts/chapter_diff.sh --embed"),
    (check_chapters, TWO + "README.md", ("<!-- diff:begin -->\n", ""), "wants one line <!-- diff:begin -->"),
    (check_chapters, TWO + "adamw.h", ("    x = 1;", "    x = 2;"), "02_adamw/README.md: stale"),
    (check_chapters, TWO + "adamw.h", ("int x;", "\nint x;"), "docs/page.md: stale"),
    (check_chapters, "docs/page.md", ("int x", "int"), None),
    (check_chapters, "docs/page.md", ("int x", "x"), "stands there 3 times"),
    (check_chapters, "docs/page.md", ("adamw.h | ", "none.h | "), "which is no file"),
    (check_chapters, "docs/page.md", (" | int x", " | int x ... gone"), "does not follow"),
    (check_chapters, "docs/page.md", (" | int x", ""), "wants '<!-- quote: FILE"),
    (check_chapters, "README.md", ("02_adamw", "02_adam"), "README.md: stale; scripts/chapter_tree.py --embed"),
    (check_chapters, "README.md", "# Ladder\n", "README.md: wants one line <!-- tree:begin -->"),
    (check_chapters, "scripts/chapters.txt", HEALTHY["scripts/chapters.txt"] + "03_x 04_y 1 1 changed\n", "no row 04_y above it"),
    (check_chapters, "scripts/chapters.txt", HEALTHY["scripts/chapters.txt"] + "02_x 01_sgd 1 1 changed\n", "its number is another's"),
]


class Project(unittest.TestCase):
    """The healthy one, in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in HEALTHY.items():
            self.plant(name, text)
        (self.root / "scripts/s.sh").chmod(0o755)
        shutil.copy(ROOT / ".clang-format", self.root)
        with contextlib.redirect_stdout(io.StringIO()):
            chapter_diff.faults(self.root, repair=True)
            chapter_tree.faults_of(self.root, repair=True)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def caught(self, check, name, change):
        """What the check says when a file is changed. The change is undone afterwards."""
        path = self.root / name
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if change is None:
            path.unlink()
        elif isinstance(change, tuple):
            self.assertIn(change[0], before)
            path.write_text(before.replace(*change, 1), encoding="utf-8")
        else:
            self.plant(name, change)
        check_chapters.types.cache_clear()
        try:
            return check.check(self.root)
        finally:
            path.unlink(missing_ok=True)
            if before is not None:
                self.plant(name, before)


class Checks(Project):
    def test_healthy(self):
        for check in CHECKS:
            if check is not check_format or not check_format.other_version():
                self.assertEqual(check.check(self.root), [], check.__name__)

    def test_faults(self):
        for check, name, change, said in FAULTS:
            if check is check_format and check_format.other_version():
                continue
            with self.subTest(check=check.__name__, file=name, change=str(change)[:60]):
                faults = self.caught(check, name, change)
                wanted = [] if said is None else said if isinstance(said, list) else [said]
                self.assertEqual(bool(faults), bool(wanted), faults)
                for words in wanted:
                    self.assertTrue(any(words in fault for fault in faults), faults)
                if len(wanted) == 1:
                    self.assertEqual(len(faults), 1, faults)

    def test_every_check_has_its_fault(self):
        caught = {check for check, _, _, said in FAULTS if said}
        self.assertEqual(caught, set(CHECKS))
        self.assertEqual({check.__name__ for check in CHECKS}, {path.stem for path in Path(__file__).parent.glob("check_*.py")})


class Chapters(Project):
    """What a budget counts, and what a diff shows."""

    def measured(self, name):
        return chapter_budget.measure(self.root, chapter_tree.read_table(self.root)[name])

    def test_includes_comments_and_blanks_are_free(self):
        self.assertEqual(self.measured("02_adamw"), (6, 2))
        free = '#include "common/c.h"\n' * 9 + "// why\n\n/* and\n why\n*/\n"
        self.plant(TWO + "main.cpp", free + HEALTHY[TWO + "main.cpp"])
        self.assertEqual(self.measured("02_adamw"), (6, 2))
        self.assertEqual(chapter_budget.strip_comments('f("//", \'"\'); // x'), 'f("//", \'"\'); ')

    def test_a_line_of_any_parent_is_not_new(self):
        for name, own in [("03_x", "int a;"), ("04_y", "int b;"), ("05_z", "int b;\nint a;\nint fresh;")]:
            self.plant(f"chapters/{name}/main.cpp", MAIN.replace("int data_;", own))
        rows = "03_x 01_sgd 9 9 changed\n04_y 01_sgd 9 9 changed\n05_z 03_x,04_y 9 9 {}\n"
        self.plant("scripts/chapters.txt", HEALTHY["scripts/chapters.txt"] + rows.format("new"))
        self.assertEqual(self.measured("05_z"), (8, 1))
        (row,) = chapter_diff.children(self.root, "05")
        shown = chapter_diff.new_lines(self.root, row).splitlines()
        self.assertEqual([line for line in shown if line.startswith("+")], ["+int fresh;"])
        self.assertIn(" int b;", shown)
        self.plant("scripts/chapters.txt", HEALTHY["scripts/chapters.txt"] + rows.format("none"))
        self.assertEqual((self.measured("05_z"), chapter_diff.children(self.root, "05")), ((8, 0), []))

    def test_branches_hang_beside_the_trunk(self):
        rows = "01_a - 1 1 changed\n02_b 01_a 1 1 changed\n13_c 02_b 1 1 new\n14_d 02_b 1 1 changed\n"
        self.plant("scripts/chapters.txt", rows + "15_e 14_d 1 1 changed\n16_f 15_e,13_c 1 1 new\n")
        self.assertEqual(chapter_tree.draw(chapter_tree.read_table(self.root)), [
            "01_a", "│", "02_b", "├── 14_d", "│   └── 15_e", "│       └── 16_f (and 13_c)", "│", "13_c"])


class Pictures(unittest.TestCase):
    """What scripts/pictures.py and scripts/front_page.py write, each with a fault in a copy."""

    def test_stale(self):
        data = json.loads(pictures.DATA.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in ["chapters", "docs/pictures", "README.md", "scripts/chapters.txt"]:
                (root / name).parent.mkdir(exist_ok=True)
                (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
            self.assertEqual(pictures.faults_of(root, data) + front_page.faults_of(root), [])
            data["models"][0]["layers"] += 1
            data["ring"][0][1]["state"][0] = 1001
            self.assertEqual([fault.partition(";")[0] for fault in pictures.faults_of(root, data)],
                             ["chapters/07_ddp/ring.svg: stale", "chapters/01_sgd/README.md: stale"])
            noted = json.loads((root / front_page.DATA).read_text(encoding="utf-8"))
            noted["08_zero1"]["Grad"] += 1
            (root / front_page.DATA).write_text(json.dumps(noted), encoding="utf-8")
            (root / "chapters/02_adamw/main.cpp").write_text(MAIN * 9, encoding="utf-8")
            self.assertEqual([fault.partition(";")[0] for fault in front_page.faults_of(root)],
                             ["README.md: stale", "docs/pictures/zero.svg: stale"])
            (root / "chapters/02_adamw/main.cpp").unlink()
            self.assertIn("ANSWERS and chapters/ differ in 02_adamw", front_page.faults_of(root)[0])

    def test_each_is_shown(self):
        for name in pictures.PICTURES:
            path = ROOT / "chapters" / name
            self.assertIn(f"]({path.name})", (path.parent / "README.md").read_text(encoding="utf-8"), name)

    def test_the_code_computes_something_else(self):
        data = json.loads(pictures.DATA.read_text(encoding="utf-8"))
        data["pipelines"][0]["idle"] = 0.5
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(data)}\nEND\n", encoding="utf-8")
            program.chmod(0o755)
            done = subprocess.run([sys.executable, ROOT / "scripts/pictures.py", "--check", "--program", program],
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the code computes something else", done.stdout)


if __name__ == "__main__":
    unittest.main()
