#!/usr/bin/env python3
"""What is made of pages. scripts/slides.py: every chapter has slides, nothing on them runs over, and all is
the README's. docs/filter.py: formulas, links and indented blocks reach Doxygen as it wants them."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from house import ROOT

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "labs"), str(ROOT / "docs")]
import filter as docs  # noqa: E402
import slides  # noqa: E402
from engine.labs import all_labs, removed_lines  # noqa: E402

CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*"))


def lines_of_text(slide):
    """The height of a slide as Marp sets it: 26 px a line, and 15 px for code and tables."""
    count, code = 0.0, False
    for line in slide.splitlines():
        if line.startswith("```"):
            code = not code
        elif code or line.startswith("|"):
            count += 15 / 26
        elif line.startswith("$$"):
            count += 3
        elif line.strip() and not line.startswith(("#", "<img ")):
            count += -(-len(re.sub(r"\]\([^)]*\)|\\[a-zA-Z]+|[{}*`$]", "", line)) // 84)
    return count


class Slides(unittest.TestCase):
    def test_every_deck(self):
        """Nothing runs over, a slide is whole, and all on it is the README's."""
        for folder in CHAPTERS:
            shown = slides.deck(folder).partition("\n---\n")[2]
            text = (folder / "README.md").read_text(encoding="utf-8")
            self.assertEqual(shown.count("<img "), len(re.findall(r"^!\[", text.partition("\n## How to run it")[0], re.MULTILINE)), folder.name)
            for diff in re.findall(r"^```diff\n.*?^```$", shown, re.MULTILINE | re.DOTALL):
                for line in re.findall(r"^[-+] .*", diff, re.MULTILINE):
                    self.assertIn(line, text, folder.name)
            for number, slide in enumerate(map(str.strip, re.split(r"^---$", shown, flags=re.MULTILINE)), 1):
                where = f"{folder.name}, slide {number}:\n{slide[:400]}"
                self.assertLessEqual(lines_of_text(slide), 17, where)
                for code in re.findall(r"^```.*?^```$", slide, re.MULTILINE | re.DOTALL):
                    self.assertLessEqual(max(map(len, code.splitlines())), 130, where)
                self.assertRegex(slide, r"\A##? .+\n\n.", where)
                self.assertEqual(slide.count("\n```") % 2, 0, where)
                prose = re.sub(r"^```.*?^```$|`[^`]*`", "", slide, flags=re.MULTILINE | re.DOTALL)
                self.assertNotRegex(prose, r"\]\((?!https?:)", "a link that leads nowhere")

    def test_without_the_diff_no_line_of_a_lab_is_shown(self):
        for lab in all_labs():
            text = slides.deck(ROOT / "chapters" / lab.chapter, diff_too=False)
            self.assertNotIn("```diff", text, lab.name)
            self.assertIn("\n## Write it yourself\n" if not lab.is_extension else "\n## The problem\n", text, lab.name)
            self.assertEqual([line for line in removed_lines(lab) if line in text], [], lab.name)

    @unittest.skipUnless(shutil.which("pandoc"), "no pandoc")
    def test_a_page_loads_nothing(self):
        text = slides.deck(ROOT / "chapters/12_pipeline_parallel")
        page = slides.as_page(text)
        self.assertEqual(page.count("<section>"), len(re.findall(r"^---$", text, re.MULTILINE)) - 1)
        self.assertNotRegex(page, r"<script|<link|@import|(?:src=\"|url\()(?!data:)")
        self.assertIn("<math ", page)

    def test_bad_input_is_one_line(self):
        for words, path in [([], ""), (["8"], ""), (["77"], ""), (["08", "07"], ""), (["--html"], ""), (["08", "--nodiff"], ""),
                            (["08", "--html"], "/nonexistent")]:
            run = subprocess.run([sys.executable, ROOT / "scripts/slides.py", *words], capture_output=True, text=True,
                                 env={**os.environ, **({"PATH": path} if path else {})})
            self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (2, "", 1), words)


NAME = "chapters_01_sgd_README"
MARKDOWN = [
    ("$a_i$-th, $12P$", r"\f$a_i\f$-th, \f$12P\f$"),
    ("$a +\nb$", "\\f$a +\nb\\f$"),
    ("$$a\n= b$$", "\\f[a\n= b\\f]"),
    # Code is left alone, and prose after it is prose.
    *((text, text) for text in ["`$a$ [b](c)`", "1. x\n\n   ```sh\n   $a-$b\n   ```\n", r"\$3 and \$4", "```sh\n## no heading\n```\n"]),
    ("`\"a` `\"b\"` `-L 'c'`", "`”a` `\"b\"` `-L 'c’`"),
    ("```math\nx\n```\n$a$\n```sh\n$b\n```\n$c$", "\\f[x\\f]\n\\f$a\\f$\n```sh\n$b\n```\n\\f$c\\f$"),
    ("[t](../../kernels/tree.h)", '\\ref kernels/tree.h "t"'),
    ("[t](../02_adamw/README.md)", "[t](chapters/02_adamw/README.md)"),
    *((f"[no page]({what})", "no page") for what in ["main.cpp", "../../kernels/cpu/team.h", "../../kernels/cpu/gemm/README.md#x"]),
    ("[p](../23_planner/planner.html#a=1&b=2)", '<a href="chapters/23_planner/planner.html#a=1&amp;b=2">p</a>'),
    ("[x](https://example.org/a)", "[x](https://example.org/a)"),
    ("![loss](loss.svg)", '<img src="chapters/01_sgd/loss.svg" alt="loss"/>'),
    ("- **`a`**: b, **c**", "- <b>`a`</b>: b, **c**"),
    ("> - a\n>   b\n> - c\n\n> d\n", "- a\n  b\n- c\n\n> d\n"),
    ("# Title\n## One `b`, two\n## A\n## A\n", f"# Title\n## One `b`, two {{#{NAME}-one-b-two}}\n## A {{#{NAME}-a}}\n## A {{#{NAME}-a-1}}\n"),
    ("[t](#a)", f'\\ref {NAME}-a "t"'),
    ("[t](../../docs/tour.md#ranks)", '\\ref docs_tour-ranks "t"'),
]


class Filter(unittest.TestCase):
    def test_markdown(self):
        for text, wanted in MARKDOWN:
            self.assertEqual(docs.markdown(text, "chapters/01_sgd/README.md"), wanted)

    def test_header(self):
        self.assertEqual(docs.header("// What for.\n#pragma once\n// not this\n"), "/// \\file\n/// What for.\n\n#pragma once\n// not this\n")
        lines = list(docs.comment([" text", "   a < b", " @throws X if", "         so", " - item"]))
        self.assertEqual(lines, [" text", "", "       a < b", "", " @throws X if", "         so", " - item"])
        self.assertEqual(list(docs.comment([" NAME.<pid>", " `a<b>`"])), [" NAME.\\<pid>", " `a<b>`"])


if __name__ == "__main__":
    unittest.main()
