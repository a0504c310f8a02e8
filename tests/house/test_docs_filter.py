#!/usr/bin/env python3
"""docs/filter.py: formulas, links and indented blocks reach Doxygen as it wants them."""

import sys
import unittest

from house import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import filter as docs  # noqa: E402

NAME = "chapters_01_sgd_README"
MARKDOWN = [
    ("$a_i$-th, $12P$", r"\f$a_i\f$-th, \f$12P\f$"),
    ("$a +\nb$", "\\f$a +\nb\\f$"),
    ("$$a\n= b$$", "\\f[a\n= b\\f]"),
    # Code is left alone, and prose after it is prose.
    *((text, text) for text in ["`$a$ [b](c)`", "1. x\n\n   ```sh\n   $a-$b\n   ```\n", r"\$3 and \$4", "```sh\n## no heading\n```\n"]),
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
