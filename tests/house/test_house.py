#!/usr/bin/env python3
"""The checks of the house are checked: each passes a healthy tree and catches planted faults."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_chapters
import check_format
import check_includes
import check_text
from check_chapters import chapter_budget
from house import ROOT

BANNERS = "\n".join(
    f"// ---- {i}. {name} " + "-" * 60 + f"\nint {name}_;\n"
    for i, name in enumerate(chapter_budget.SECTIONS, 1)
)
MAIN = '// A lesson.\n#include "common/b.h"\n' + BANNERS
MARKS = "<!-- diff:begin -->\n<!-- diff:end -->\n"
README = "# A lesson\n\n" + "\n\ntext\n\n".join(check_chapters.SECTIONS) + "\n"
WITH_DIFF = README.replace("## The diff\n", "## The diff\n\n" + MARKS)

HEALTHY = {
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
        for name in ["chapters.txt", "chapter_diff.sh", "chapter_budget.py"]:
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


class Includes(Tree):
    def caught(self, name, text, words):
        self.plant(name, text)
        self.assert_caught(check_includes.check, words)

    def test_healthy(self):
        self.assertEqual(check_includes.check(self.root), [])

    def test_kernels_know_nobody(self):
        self.caught("kernels/bad.h", '#include "common/b.h"\n', "kernels may not know common/b.h")

    def test_common_knows_no_chapter(self):
        text = '#include "chapters/02_adamw/adamw.h"\n'
        self.caught("common/bad.h", text, "common may not know chapters/")

    def test_chapter_knows_no_larger_number(self):
        text = '#include "chapters/02_adamw/adamw.h"\n'
        self.caught("chapters/01_sgd/bad.h", text, "chapter 01 may not know")

    def test_chapter_may_know_a_smaller_number(self):
        self.plant("chapters/03_schedules/good.h", '#include "chapters/02_adamw/adamw.h"\n')
        self.assertEqual(check_includes.check(self.root), [])

    def test_nobody_knows_tests(self):
        self.plant("tests/t.h", "")
        self.caught("common/bad.h", '#include "tests/t.h"\n', "common may not know tests/t.h")

    def test_path_from_the_root(self):
        self.caught("common/bad.h", '#include "b.h"\n', "seen from the root")

    def test_chosen_header_is_in_both_folders(self):
        self.plant("kernels/cuda/native/launch.h", "// L.\n#pragma once\n")
        self.plant("kernels/cuda/k.cu", '// K.\n#include "launch.h"\n')
        self.assert_caught(check_includes.check, '"launch.h" is no file')
        self.plant("kernels/cuda/on_cpu/launch.h", "// L.\n#pragma once\n")
        self.assertEqual(check_includes.check(self.root), [])
        self.caught("kernels/k.cpp", '#include "launch.h"\n', '"launch.h" is no file')

    def test_path_goes_only_down(self):
        text = '#include "kernels/../common/b.h"\n'
        self.caught("kernels/bad.h", text, "seen from the root")

    def test_no_file_of_ours_in_angles(self):
        self.caught("common/bad.h", "#  include <kernels/a.h>\n", "quotes")

    def test_circle_of_files(self):
        self.plant("kernels/c.h", '#include "kernels/d.h"\n')
        self.caught("kernels/d.h", '#include "kernels/c.h"\n', "circle: kernels/c.h -> kernels/d.h")

    def test_circle_of_folders(self):
        self.plant("common/data/d.h", '#include "common/b.h"\n')
        self.plant("common/data/e.h", "")
        self.caught("common/b.h", '#include "common/data/e.h"\n', "circle: common -> common/data")

    def test_target_of_a_higher_floor(self):
        text = "add_library(floor0 a.cpp)\ntarget_link_libraries(floor0 floor1)\n"
        self.caught("kernels/CMakeLists.txt", text, "may not know the target floor1 of common")

    def test_targets_that_functions_make(self):
        self.plant("tests/CMakeLists.txt", "ladder_test(some_tests LABEL unit)\n# ch07_ddp\n")
        self.assertEqual(check_includes.check(self.root), [])
        for target, home in [("ch07_ddp", "chapters"), ("some_tests", "tests")]:
            with self.subTest(target):
                text = HEALTHY["common/CMakeLists.txt"] + f"add_dependencies(floor1 {target})\n"
                self.caught("common/CMakeLists.txt", text, f"the target {target} of {home}")


class Chapters(Tree):
    def test_healthy(self):
        self.assertEqual(check_chapters.check(self.root), [])

    def test_missing_readme(self):
        (self.root / "chapters/01_sgd/README.md").unlink()
        self.assert_caught(check_chapters.check, "01_sgd/README.md: missing")

    def test_swapped_sections(self):
        text = README.replace("## The idea", "## X").replace("## The problem", "## The idea")
        self.plant("chapters/01_sgd/README.md", text.replace("## X", "## The problem"))
        self.assert_caught(check_chapters.check, "wants these sections")

    def test_heading_in_a_code_block_is_none(self):
        self.plant("chapters/01_sgd/README.md", README + "\n```\n## Not a heading\n```\n")
        self.assertEqual(check_chapters.check(self.root), [])

    def test_unknown_chapter(self):
        self.plant("chapters/99_magic/main.cpp", MAIN)
        self.plant("chapters/99_magic/README.md", README)
        self.assert_caught(check_chapters.check, "not in scripts/chapters.txt")

    def test_swapped_banners(self):
        text = MAIN.replace("4. data", "4. step").replace("5. step", "5. data")
        self.plant("chapters/01_sgd/main.cpp", text)
        self.diff("--embed")
        self.assert_caught(check_chapters.check, "six banners")

    def test_main_over_budget(self):
        many = "".join(f"int v{i};\n" for i in range(chapter_budget.MAIN_BUDGET))
        for chapter in ["01_sgd", "02_adamw"]:
            text = self.read(f"chapters/{chapter}/main.cpp")
            self.plant(f"chapters/{chapter}/main.cpp", text.replace("int data_;\n", many))
        self.diff("--embed")
        faults = check_chapters.check(self.root)
        self.assertEqual(len(faults), 2, faults)
        self.assertIn("01_sgd/main.cpp: 303 lines of code, budget 300", faults[0])

    def test_diff_over_budget(self):
        many = "".join(f"int v{i};\n" for i in range(99))
        text = self.read("chapters/02_adamw/main.cpp")
        self.plant("chapters/02_adamw/main.cpp", text.replace("int data_;\n", many))
        self.diff("--embed")  # 99 added, data_ removed, step_ changed
        self.assert_caught(check_chapters.check, "102 changed lines, budget 100")

    def test_options_report_comments_and_blanks_are_free(self):
        free = "".join(f"int v{i};\n" for i in range(500))
        comments = "// why\n\n/* and\n why\n*/\n" * 200
        text = self.read("chapters/02_adamw/main.cpp").replace("int report_;\n", free)
        text = text.replace("int options_;\n", free)
        text = text.replace("int data_;\n", comments + "int data_;\n")
        self.plant("chapters/02_adamw/main.cpp", text)
        self.diff("--embed")
        self.assertEqual(check_chapters.check(self.root), [])

    def test_includes_are_free(self):
        before = chapter_budget.measure(self.root, "02_adamw", ["01_sgd"], "changed")
        includes = "".join(f'#include "common/b{i}.h"\n' for i in range(400))
        text = self.read("chapters/02_adamw/main.cpp")
        self.plant("chapters/02_adamw/main.cpp", includes + text)
        self.diff("--embed")
        self.assertEqual(check_chapters.check(self.root), [])
        after = chapter_budget.measure(self.root, "02_adamw", ["01_sgd"], "changed")
        self.assertEqual(after, before)

    def test_slashes_in_a_string_are_code(self):
        self.assertEqual(chapter_budget.strip_comments('f("//", \'"\'); // x'), 'f("//", \'"\'); ')

    def test_a_line_of_any_parent_is_not_new(self):
        parents = ["08_zero1", "11_tensor_parallel", "12_pipeline_parallel"]
        for name, own in zip(parents, "abc"):
            self.plant(f"chapters/{name}/main.cpp", MAIN.replace("int data_;", f"int {own};"))
        text = MAIN.replace("int data_;", "int c;\nint a;\nint b;\nint fresh;")
        self.plant("chapters/13_3d_parallel/main.cpp", text)
        measured = chapter_budget.measure(self.root, "13_3d_parallel", parents, "new")
        self.assertEqual(measured, (7, 1))
        labels = [f"--- chapters/{name}/main.cpp" for name in parents]
        shown = [line for line in self.diff("13").stdout.splitlines() if line.startswith("---")]
        self.assertEqual(shown, labels)
        self.plant("chapters/13_3d_parallel/README.md", WITH_DIFF)
        self.diff("--embed", "13")
        readme = self.read("chapters/13_3d_parallel/README.md").splitlines()
        self.assertEqual([line for line in readme if line.startswith("+")], ["+int fresh;"])
        self.assertIn(" int b;", readme)

    def test_stale_diff(self):
        text = self.read("chapters/02_adamw/main.cpp").replace("more", "less")
        self.plant("chapters/02_adamw/main.cpp", text)
        self.assert_caught(check_chapters.check, "02_adamw/README.md: stale diff")
        self.diff("--embed", "02")
        self.assertEqual(check_chapters.check(self.root), [])

    def test_backslashes_survive_embedding(self):
        text = self.read("chapters/02_adamw/main.cpp").replace("more;", 'more; // "\\n" & \\\\')
        self.plant("chapters/02_adamw/main.cpp", text)
        self.diff("--embed")
        line = '+int step_, more; // "\\n" & \\\\\n'
        self.assertIn(line, self.read("chapters/02_adamw/README.md"))

    def test_missing_marks(self):
        self.plant("chapters/02_adamw/README.md", README)
        self.assert_caught(check_chapters.check, "wants one line <!-- diff:begin -->")


class Text(Tree):
    def caught(self, name, text, words):
        self.plant(name, text)
        self.assert_caught(check_text.check, words)

    def test_healthy(self):
        self.assertEqual(check_text.check(self.root), [])

    def test_tab(self):
        self.caught("common/b.cpp", "int\tx;\n", "b.cpp:1: tab")

    def test_blanks_at_the_end_of_a_line(self):
        self.caught("docs/x.md", "word \n", "x.md:1: blanks")

    def test_last_line_without_end(self):
        self.caught("docs/x.md", "word", "one line end")

    def test_header_without_a_comment(self):
        self.caught("kernels/x.h", "#pragma once\n", "no comment")

    def test_long_files(self):
        for name, limit in [
            ("kernels/x.h", 200),
            ("chapters/02_adamw/x.h", 250),
            ("common/x.cpp", 400),
            ("tests/x.cpp", 300),
        ]:
            with self.subTest(name):
                self.plant(name, "//\n" * limit)
                self.assertEqual(check_text.check(self.root), [])
                self.caught(name, "//\n" * (limit + 1), f"{limit + 1} lines, limit {limit}")
                (self.root / name).unlink()

    def test_script_that_does_not_parse(self):
        self.plant(".ci/run", "#!/usr/bin/env bash\nif true; then\n")
        self.assertTrue(any("syntax error" in fault for fault in check_text.check(self.root)))

    def test_script_that_cannot_be_called(self):
        self.plant("tests/t.sh", "#!/usr/bin/env bash\n")  # given to bash
        self.assertEqual(check_text.check(self.root), [])
        self.caught("scripts/s.sh", "#!/usr/bin/env bash\n", "s.sh: not executable")


class Format(Tree):
    def test_healthy(self):
        self.assertEqual(check_format.check(self.root), [])

    def test_unformatted(self):
        self.plant("common/b.cpp", "int   x  ;\n")
        self.assert_caught(check_format.check, "common/b.cpp: clang-format would change it")


if __name__ == "__main__":
    unittest.main()
