#!/usr/bin/env python3
"""Writes common/tokens/unicode_table.inc: which characters are letters, numbers and white space.

    python3 -m pip install unicodedata2==16.0.0
    scripts/unicode_table.py

Tokenizers must agree on the version of Unicode: a character that became a letter in another version
is split differently. Version 16 is that of tiktoken 0.14 and tokenizers 0.23.
"""

import sys
from pathlib import Path

import unicodedata2

VERSION = "16.0.0"
TABLE = Path(__file__).resolve().parents[1] / "common/tokens/unicode_table.inc"
# The property White_Space, which the regular expressions call \\s. The module does not have it.
SPACE = [(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
         (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]


def ranges(has):
    """[first, last] of each run of code points that `has` takes."""
    found = []
    for code in filter(has, range(0x110000)):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def rows(kind, found):
    entries = [f"{{0x{first:X}, 0x{last:X}, CharClass::{kind}}}," for first, last in found]
    return [" ".join(entries[i:i + 2]) for i in range(0, len(entries), 2)]


def table():
    lines = [f"// Unicode {VERSION}, as scripts/unicode_table.py has written it: first, last, class.",
             "// clang-format off"]
    for kind, initial in (("Letter", "L"), ("Number", "N")):
        lines += rows(kind, ranges(lambda code: unicodedata2.category(chr(code))[0] == initial))
    return "\n".join(lines + rows("Space", SPACE)) + "\n"


if __name__ == "__main__":
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicode_table.py: unicodedata2 has Unicode {unicodedata2.unidata_version}; legal is {VERSION}")
    TABLE.write_text(table())
