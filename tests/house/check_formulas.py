#!/usr/bin/env python3
"""Formulas of Markdown pages are shown by GitHub as they are meant.

It takes a backslash before a punctuation mark for Markdown's own and drops it: a thin space becomes a
comma, and a line break of a matrix is lost. Commands of letters stay, and so does a backslash before
a blank. (A block of ```math is left alone, and so is code.)
"""

import re

from check_sentences import pages
from house import tell

CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?! )[^$\n]*\n?[^$\n]*[^$\s]\$(?!\d)", re.DOTALL)
LOST = re.compile(r"\\[^\w\s]")


def check(root):
    found = []
    for path in pages(root):
        prose = CODE.sub("", path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(root)}: GitHub loses the backslash of {lost} in {formula[:60]}"
                  for formula in FORMULA.findall(prose) for lost in LOST.findall(formula)]
    return found


if __name__ == "__main__":
    tell(check)
