#!/usr/bin/env python3
"""docs/filter.py: formulas, links and indented blocks reach Doxygen as it wants them."""

import sys
import unittest

from house import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import filter as docs  # noqa: E402


class Markdown(unittest.TestCase):
    def check(self, text, wanted):
        self.assertEqual(docs.markdown(text, "chapters/01_sgd/README.md"), wanted)

    def test_formulas(self):
        self.check("$a_i$-th, $12P$", r"\f$a_i\f$-th, \f$12P\f$")
        self.check("$a +\nb$", "\\f$a +\nb\\f$")
        self.check("$$a\n= b$$", "\\f[a\n= b\\f]")
        self.check("```math\n\\frac{1}{2}\n```\n", "\\f[\\frac{1}{2}\\f]\n")

    def test_code_is_left_alone(self):
        for text in ["`$a$ [b](c)`", "```sh\necho $a $b\n```\n", "1. x\n\n   ```sh\n   $a-$b\n   ```\n",
                     r"\$3 and \$4"]:
            self.check(text, text)

    def test_prose_after_blocks(self):
        text = "```math\nx\n```\n$a$\n```sh\n$b\n```\n$c$"
        self.check(text, "\\f[x\\f]\n\\f$a\\f$\n```sh\n$b\n```\n\\f$c\\f$")

    def test_links(self):
        self.check("[t](../../kernels/tree.h)", '\\ref kernels/tree.h "t"')
        self.check("[t](../02_adamw/README.md)", "[t](chapters/02_adamw/README.md)")
        for what in ["main.cpp", "../../kernels/cpu/team.h", "../../kernels/cpu/gemm/README.md#x"]:
            self.check(f"[no page]({what})", "no page")
        self.check("[p](../23_planner/planner.html#a=1&b=2)", '<a href="chapters/23_planner/planner.html#a=1&amp;b=2">p</a>')
        self.check("[x](https://example.org/a)", "[x](https://example.org/a)")
        self.check("![loss](loss.svg)", '<img src="chapters/01_sgd/loss.svg" alt="loss"/>')

    def test_bold_code(self):
        self.check("- **`a`**: b, **c**", "- <b>`a`</b>: b, **c**")

    def test_a_quoted_list_is_a_list(self):
        self.check("> - a\n>   b\n> - c\n\n> d\n", "- a\n  b\n- c\n\n> d\n")

    def test_headings_and_links_to_them(self):
        name = "chapters_01_sgd_README"
        self.check("# Title\n## One `b`, two\n## A\n## A\n",
                   f"# Title\n## One `b`, two {{#{name}-one-b-two}}\n## A {{#{name}-a}}\n## A {{#{name}-a-1}}\n")
        self.check("```sh\n## no heading\n```\n", "```sh\n## no heading\n```\n")
        self.check("[t](#a)", f'\\ref {name}-a "t"')
        self.check("[t](../../docs/tour.md#ranks)", '\\ref docs_tour-ranks "t"')


class Header(unittest.TestCase):
    def test_first_comment_documents_the_file(self):
        text = docs.header("// What for.\n#pragma once\n// not this\n")
        self.assertEqual(text, "/// \\file\n/// What for.\n\n#pragma once\n// not this\n")

    def test_indented_lines_become_code(self):
        lines = list(docs.comment([" text", "   a < b", " @throws X if", "         so", " - item"]))
        wanted = [" text", "", "       a < b", "", " @throws X if", "         so", " - item"]
        self.assertEqual(lines, wanted)

    def test_no_html(self):
        self.assertEqual(list(docs.comment([" NAME.<pid>", " `a<b>`"])), [" NAME.\\<pid>", " `a<b>`"])


if __name__ == "__main__":
    unittest.main()
