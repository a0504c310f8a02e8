#!/usr/bin/env python3
"""Holds every chapter's main.cpp to its budget: few lines, and few that its parent lacks.

Counted are lines of code: no blanks, no comments, no includes (they are a table of contents), and
nothing of the sections `options` and `report`. Every main.cpp has the same six sections in the same order. The tests run this script:
a chapter over its budget is more than a reader can hold in the head.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SECTIONS = ["options", "layout", "memory", "data", "step", "report"]
NOT_COUNTED = {"options", "report"}
MAIN_BUDGET = 300

BANNER = re.compile(r"// ---- (\d)\. (\w+) -+$")
# A string or character literal (kept: it may hold "//"), or a comment (dropped).
TOKEN = re.compile(r'("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)


def strip_comments(text):
    """The text without comments; lines stay lines."""
    return TOKEN.sub(lambda m: m[1] or "\n" * m[0].count("\n"), text)


def banners(text):
    """The section banners of a main.cpp as (number, name)."""
    return [(int(m[1]), m[2]) for line in text.splitlines() if (m := BANNER.match(line))]


def counted_lines(text):
    """Lines of code outside the sections that do not count, stripped of their margins."""
    section, lines = "", []
    for raw, code in zip(text.splitlines(), strip_comments(text).splitlines()):
        banner = BANNER.match(raw)
        if banner:
            section = banner[2]
        elif code.strip() and not code.startswith("#include") and section not in NOT_COUNTED:
            lines.append(code.strip())
    return lines


def changed(parent, child):
    """How many lines a minimal diff adds and removes."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "parent"), Path(folder, "child")]
        for file, lines in zip(files, [parent, child]):
            file.write_text("".join(line + "\n" for line in lines))
        diff = subprocess.run(["diff", "--minimal", *files], capture_output=True, text=True)
    return sum(line[0] in "<>" for line in diff.stdout.splitlines())


def table(root):
    """Rows of scripts/chapters.txt: name, list of parents, budget of the diff, way of counting."""
    for line in (root / "scripts/chapters.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, parents, budget, way = line.split()
            yield name, [] if parents == "-" else parents.split(","), int(budget), way


def main_of(root, name):
    return root / "chapters" / name / "main.cpp"


def measure(root, name, parents, way):
    """Lines of code of a chapter's main.cpp, and of its diff."""
    code = counted_lines(main_of(root, name).read_text())
    family = [counted_lines(main_of(root, parent).read_text()) for parent in parents]
    if not parents:
        return len(code), 0
    if way == "changed":
        return len(code), changed(family[0], code)
    known = set().union(*family)
    return len(code), sum(line not in known for line in code)


def check(root):
    """Rows of the printed table, and one line for each fault."""
    rows, faults = [], []
    for name, parents, budget, way in table(root):
        main = main_of(root, name)
        if not main.exists():
            continue
        where = main.relative_to(root)
        if banners(main.read_text()) != list(enumerate(SECTIONS, 1)):
            faults.append(f"{where}: wants the six banners in order: {', '.join(SECTIONS)}")
        orphaned = [parent for parent in parents if not main_of(root, parent).exists()]
        if orphaned:
            faults.append(f"{where}: no parent {', '.join(orphaned)}")
            continue
        code, diff = measure(root, name, parents, way)
        rows.append((name, code, MAIN_BUDGET, diff, budget))
        if code > MAIN_BUDGET:
            faults.append(f"{where}: {code} lines of code, budget {MAIN_BUDGET}")
        if diff > budget:
            faults.append(f"{where}: {diff} {way} lines, budget {budget}")
    return rows, faults


def main():
    rows, faults = check(Path(__file__).resolve().parents[1])
    print(f"{'chapter':<22}{'main.cpp':>10}{'budget':>8}{'diff':>8}{'budget':>8}")
    for name, code, code_budget, diff, diff_budget in rows:
        print(f"{name:<22}{code:>10}{code_budget:>8}{diff:>8}{diff_budget:>8}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
