#!/usr/bin/env python3
"""Quotes of code in READMEs and docs: lines that make an idea work and stand in no diff.

    scripts/chapter_quotes.py --embed [NN]   write them into the READMEs
    scripts/chapter_quotes.py --check [NN]   fail if a README holds others

NN: of that chapter alone, else of all chapters and of the pages in docs/, where a quote says its line.
scripts/chapter_diff.sh calls this, too. A quote stands between two marks:

    <!-- quote: common/comm/chunks.h | first line ... last line -->
    <!-- quote:end -->

"first line" is a piece of exactly one line of the file; the quote ends with the next line that has
"last line" in it. "... {}" ends it where the block that the first line opens is closed. Without any
"..." it is one line.
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^<!-- quote: (\S+) \| (.+?)(?: \.\.\. (.+))? -->$")
END = "<!-- quote:end -->"


class Stale(Exception):
    """What a mark names is not there, or there twice."""


def quoted(root, name, first, last):
    """The lines that a mark names, without what all of them are indented by; and where they begin."""
    path = root / name
    if not path.is_file():
        raise Stale(f"quotes {name}, which is no file")
    lines = path.read_text(encoding="utf-8").splitlines()
    begins = [i for i, line in enumerate(lines) if first in line]
    if len(begins) != 1:
        raise Stale(f"quotes {name} from '{first}', which stands there {len(begins)} times, not once")
    begin = begins[0]
    if not last:
        return [lines[begin].strip()], begin + 1
    margin = re.match(" *", lines[begin])[0]
    for end in range(begin + 1, len(lines)):
        if lines[end].startswith(margin + "}") if last == "{}" else last in lines[end]:
            return textwrap.dedent("\n".join(lines[begin:end + 1])).splitlines(), begin + 1
    raise Stale(f"quotes {name} up to '{last}', which does not follow '{first}'")


def embedded(root, text, numbered=False):
    """A README's text with its quotes as the files have them; `numbered`: and their lines."""
    out, mark = [], None
    for line in text.splitlines():
        if line == END:
            if not mark:
                raise Stale(f"has a line {END} without its beginning")
            mark = None
        elif line.startswith("<!-- quote: "):
            found = MARK.match(line)
            if mark or not found:
                raise Stale(f"wants '<!-- quote: FILE | FIRST ... LAST -->' and then {END}, at: {line}")
            mark = found
            comment = "#" if Path(mark[1]).suffix in {".py", ".sh"} else "//"
            lines, number = quoted(root, *mark.groups())
            where = f"{mark[1]}:{number}" if numbered else mark[1]
            out += [line, "```cpp", f"{comment} {where}", *lines, "```"]
            continue
        if not mark:
            out.append(line)
    if mark:
        raise Stale(f"wants a line {END} after: {mark[0]}")
    return "\n".join(out) + "\n"


def faults(root, number="", repair=False):
    found = []
    pages = sorted((root / "chapters").glob(f"{number or '[0-9][0-9]'}_*/README.md"))
    docs = [] if number else sorted((root / "docs").glob("*.md"))
    for readme in pages + docs:
        where, text = readme.relative_to(root), readme.read_text(encoding="utf-8")
        try:
            new = embedded(root, text, numbered=readme in docs)
        except Stale as stale:
            found.append(f"{where}: {stale}")
            continue
        if new == text:
            continue
        if repair:
            readme.write_text(new, encoding="utf-8")
            print(f"{where}: rewritten")
        else:
            found.append(f"{where}: stale quote; scripts/chapter_diff.sh --embed"
                         f"{'' if readme in docs else ' ' + where.parts[1][:2]} rewrites it")
    return found


def main(words):
    if not words or words[0] not in ("--embed", "--check") or len(words) > 2:
        print("usage: scripts/chapter_quotes.py --embed|--check [NN]", file=sys.stderr)
        return 2
    found = faults(ROOT, "".join(words[1:]), words[0] == "--embed")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
