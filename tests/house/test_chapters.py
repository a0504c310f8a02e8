#!/usr/bin/env python3
"""check_chapters.py is checked: READMEs, budgets, diffs and the tree that it must refuse."""

import contextlib
import io
import unittest

import check_chapters
from check_chapters import chapter_budget, chapter_tree
from planted import HEALTHY, MAIN, README, WITH_DIFF, Tree


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

    def test_ranks(self):
        self.plant("docs/running.md", "All others, 01 to 03, run on one rank.")
        text = self.read("chapters/01_sgd/main.cpp")
        self.plant("chapters/01_sgd/main.cpp", text + "// o.run.refuse_ranks();\n")
        found = check_chapters.check_ranks(self.root)
        self.assertEqual([line[27:34] for line in found], ["02 runs", "03 runs"], found)
        self.plant("docs/running.md", "All others, 01, run on one rank.")
        self.assertEqual(check_chapters.check_ranks(self.root), [])

    def measured(self, name):
        return chapter_budget.measure(self.root, chapter_tree.read_table(self.root)[name])

    def test_main_over_budget(self):
        many = "".join(f"int v{i};\n" for i in range(300))
        for chapter in ["01_sgd", "02_adamw"]:
            text = self.read(f"chapters/{chapter}/main.cpp")
            self.plant(f"chapters/{chapter}/main.cpp", text.replace("int data_;\n", many))
        self.diff("--embed")
        faults = check_chapters.check(self.root)
        self.assertEqual(len(faults), 2, faults)
        self.assertIn("01_sgd/main.cpp: 305 lines of code, budget 300", faults[0])

    def test_diff_over_budget(self):
        many = "".join(f"int v{i};\n" for i in range(118))
        text = self.read("chapters/02_adamw/main.cpp")
        self.plant("chapters/02_adamw/main.cpp", text.replace("int data_;\n", many))
        self.diff("--embed")  # 118 added, data_ removed, step_ changed
        self.assert_caught(check_chapters.check, "121 changed lines, budget 120")

    def test_every_section_counts(self):
        code, diff = self.measured("02_adamw")
        text = self.read("chapters/02_adamw/main.cpp")
        for name in chapter_budget.SECTIONS:
            text = text.replace(f"int {name}_", f"int more_of_{name};\nint {name}_")
        self.plant("chapters/02_adamw/main.cpp", text)
        self.assertEqual(self.measured("02_adamw"), (code + 6, diff + 6))

    def test_includes_comments_and_blanks_are_free(self):
        before = self.measured("02_adamw")
        includes = "".join(f'#include "common/b{i}.h"\n' for i in range(400))
        comments = "// why\n\n/* and\n why\n*/\n" * 200
        text = self.read("chapters/02_adamw/main.cpp").replace("int data_;\n", comments + "int data_;\n")
        self.plant("chapters/02_adamw/main.cpp", includes + text)
        self.diff("--embed")
        self.assertEqual(check_chapters.check(self.root), [])
        self.assertEqual(self.measured("02_adamw"), before)

    def test_slashes_in_a_string_are_code(self):
        self.assertEqual(chapter_budget.strip_comments('f("//", \'"\'); // x'), 'f("//", \'"\'); ')

    def test_a_line_of_any_parent_is_not_new(self):
        parents = ["08_zero1", "11_tensor_parallel", "12_pipeline_parallel"]
        for name, own in zip(parents, "abc"):
            self.plant(f"chapters/{name}/main.cpp", MAIN.replace("int data_;", f"int {own};"))
        text = MAIN.replace("int data_;", "int c;\nint a;\nint b;\nint fresh;")
        self.plant("chapters/13_3d_parallel/main.cpp", text)
        self.assertEqual(self.measured("13_3d_parallel"), (9, 1))
        labels = [f"--- chapters/{name}/main.cpp" for name in parents]
        shown = [line for line in self.diff("13").stdout.splitlines() if line.startswith("---")]
        self.assertEqual(shown, labels)
        self.plant("chapters/13_3d_parallel/README.md", WITH_DIFF)
        self.diff("--embed", "13")
        readme = self.read("chapters/13_3d_parallel/README.md").splitlines()
        self.assertEqual([line for line in readme if line.startswith("+")], ["+int fresh;"])
        self.assertIn(" int b;", readme)

    def test_what_trains_nothing_has_no_diff(self):
        many = "".join(f"int v{i};\n" for i in range(290))
        self.plant("chapters/02_adamw/main.cpp", MAIN.replace("int data_;\n", many))
        self.plant("chapters/02_adamw/README.md", README)
        rows = "01_sgd - 300 0 changed\n02_adamw 01_sgd 300 0 none\n"
        self.plant("scripts/chapters.txt", rows)
        self.assertEqual(check_chapters.check(self.root), [])
        self.assertEqual(self.measured("02_adamw"), (295, 0))
        self.assertIn("no chapter '02'", self.diff("02").stderr)
        self.plant("scripts/chapters.txt", rows.replace("300 0 none", "294 0 none"))
        self.assert_caught(check_chapters.check, "295 lines of code, budget 294")

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

    def quote(self, mark):
        """What the checks say with a quote in a README."""
        text = self.read("chapters/02_adamw/README.md")
        self.plant("chapters/02_adamw/README.md",
                   text.replace("## What must", f"<!-- quote: {mark} -->\n<!-- quote:end -->\n\n## What must"))
        self.diff("--embed", "02")

    def test_quotes(self):
        self.plant("chapters/02_adamw/adamw.h", "// C.\n  if (x) {\n    y{\n    };\n  }\n  z;\n")
        self.quote("chapters/02_adamw/adamw.h | if (x) ... {}")
        self.assertEqual(check_chapters.check(self.root), [])
        self.assertIn("```cpp\n// chapters/02_adamw/adamw.h\nif (x) {\n  y{\n  };\n}\n```\n<!-- quote:end -->",
                      self.read("chapters/02_adamw/README.md"))
        self.plant("chapters/02_adamw/adamw.h", "// C.\n  if (x) {\n    other;\n  }\n")
        self.assert_caught(check_chapters.check, "02_adamw/README.md: stale quote")
        self.diff("--embed")
        self.assertEqual(check_chapters.check(self.root), [])

    def test_quotes_in_docs_say_their_line(self):
        self.plant("chapters/02_adamw/adamw.h", "// C.\nint x;\n")
        self.plant("docs/page.md", "<!-- quote: chapters/02_adamw/adamw.h | int x -->\n<!-- quote:end -->\n")
        self.assert_caught(check_chapters.check, "docs/page.md: stale quote")
        self.diff("--embed")
        self.assertIn("```cpp\n// chapters/02_adamw/adamw.h:2\nint x;\n```", self.read("docs/page.md"))
        self.assertEqual(check_chapters.check(self.root), [])
        self.plant("chapters/02_adamw/adamw.h", "// C.\n\nint x;\n")
        self.assert_caught(check_chapters.check, "docs/page.md: stale quote")

    def test_quotes_of_what_is_gone(self):
        for mark, words in [("chapters/none.h | x", "which is no file"),
                            ("chapters/02_adamw/adamw.h | gone", "stands there 0 times"),
                            ("chapters/02_adamw/adamw.h | #", "stands there 2 times"),
                            ("chapters/02_adamw/adamw.h | // C. ... gone", "does not follow"),
                            ("chapters/02_adamw/adamw.h", "wants '<!-- quote: FILE")]:
            with self.subTest(mark):
                self.plant("chapters/02_adamw/README.md", WITH_DIFF)
                self.diff("--embed", "02")
                self.quote(mark)
                self.assert_caught(check_chapters.check, words)

    def test_types_that_are_not_there(self):
        self.plant("common/b.h", "// B.\n#pragma once\nclass There {};\n")
        box = "**Types you will meet**\n\n- `There`: is one\n- `Gone`: is none\n\n## The diff"
        self.plant("chapters/01_sgd/README.md", README.replace("## The diff", box))
        self.assert_caught(check_chapters.check, "box of types: - `Gone`: is none")

    def test_exercises(self):
        good = "\n1. ★ (10 min) Do.\n\n   *Check.* `true`\n\n2. ★★★ (90 min) Do.\n"
        for text, words in [(good.replace("★ (10 min) ", ""), "exercise 1 wants to begin with stars"),
                            (good.replace("*Check.*", ""), "0 of 2 exercises say how to check them")]:
            with self.subTest(words):
                self.plant("chapters/01_sgd/README.md", README + good)
                self.assertEqual(check_chapters.check(self.root), [])
                self.plant("chapters/01_sgd/README.md", README + text)
                self.assert_caught(check_chapters.check, words)

    def test_no_three_lines_on_top(self):
        self.plant("chapters/01_sgd/README.md", README.replace("> - Two.\n", ""))
        self.assert_caught(check_chapters.check, "01_sgd/README.md: wants three lines")

    def test_stale_tree(self):
        self.plant("README.md", self.read("README.md").replace("02_adamw", "02_adam"))
        self.assert_caught(check_chapters.check, "README.md: stale tree")
        with contextlib.redirect_stdout(io.StringIO()):
            chapter_tree.faults_of_readme(self.root, repair=True)
        self.assertEqual(self.read("README.md"), HEALTHY["README.md"])

    def test_a_tree_without_its_marks(self):
        self.plant("README.md", "# Ladder\n")
        self.assert_caught(check_chapters.check, "README.md: wants one line <!-- tree:begin -->")

    def test_branches_hang_beside_the_trunk(self):
        rows = "01_a - 1 1 changed\n02_b 01_a 1 1 changed\n13_c 02_b 1 1 new\n14_d 02_b 1 1 changed\n"
        rows += "15_e 14_d 1 1 changed\n16_f 15_e,13_c 1 1 new\n"
        self.plant("scripts/chapters.txt", rows)
        self.assertEqual(chapter_tree.draw(chapter_tree.read_table(self.root)), [
            "01_a", "│", "02_b", "├── 14_d", "│   └── 15_e", "│       └── 16_f (and 13_c)", "│", "13_c"])

    def test_rows_of_the_table(self):
        rows = "01_sgd - 300 0 changed\n02_adamw 01_sgd 300 120 changed\n"
        for bad, words in [("03_x 04_y", "no row 04_y above it"), ("02_x 01_sgd", "its number is another's")]:
            with self.subTest(bad):
                self.plant("scripts/chapters.txt", f"{rows}{bad} 300 120 changed\n")
                self.assert_caught(check_chapters.check, words)

    def test_missing_marks(self):
        self.plant("chapters/02_adamw/README.md", README)
        self.assert_caught(check_chapters.check, "wants one line <!-- diff:begin -->")


if __name__ == "__main__":
    unittest.main()
