#!/usr/bin/env python3
"""Holds every chapter's main.cpp to its budget: few lines, and few that its parent lacks.

    scripts/chapter_budget.py    print the counts

Every line of code counts but includes, which are a table of contents. Every main.cpp has the same
six banners in the same order. The tests run this script: a chapter over its budget is more than a
reader can hold in the head.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import chapter_tree

SECTIONS = ["options", "layout", "memory", "data", "step", "report"]

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
    """Lines of code, stripped of their margins."""
    lines = [line.strip() for line in strip_comments(text).splitlines()]
    return [line for line in lines if line and not line.startswith("#include")]


def changed(parent, child):
    """How many lines a minimal diff adds and removes."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "parent"), Path(folder, "child")]
        for file, lines in zip(files, [parent, child]):
            file.write_text("".join(line + "\n" for line in lines))
        diff = subprocess.run(["diff", "--minimal", *files], capture_output=True, text=True)
    return sum(line[0] in "<>" for line in diff.stdout.splitlines())


def main_of(root, name):
    return root / "chapters" / name / "main.cpp"


def code_of(root, name):
    return counted_lines(main_of(root, name).read_text(encoding="utf-8"))


def own(root, row):
    """How many lines of a chapter's main.cpp no parent has."""
    known = {line for parent in row.parents for line in code_of(root, parent)}
    return sum(line not in known for line in code_of(root, row.name))


def measure(root, row):
    """Lines of code of a chapter's main.cpp, and of its diff as the budget counts it."""
    code = code_of(root, row.name)
    if not row.parents or not row.has_diff:
        return len(code), 0
    return len(code), changed(code_of(root, row.parents[0]), code) if row.way == "changed" else own(root, row)


def check(root):
    """Rows of the printed table, and one line for each fault."""
    rows, faults = [], chapter_tree.faults_of_table(root)
    if faults:
        return rows, faults
    for name, row in chapter_tree.chapters(root).items():
        where = f"chapters/{name}/main.cpp"
        if banners(main_of(root, name).read_text(encoding="utf-8")) != list(enumerate(SECTIONS, 1)):
            faults.append(f"{where}: wants the six banners in order: {', '.join(SECTIONS)}")
        code, diff = measure(root, row)
        rows.append((row, code, diff))
        if code > row.main_budget:
            faults.append(f"{where}: {code} lines of code, budget {row.main_budget}")
        if diff > row.diff_budget:
            faults.append(f"{where}: {diff} {row.way} lines, budget {row.diff_budget}")
    return rows, faults


def main():
    if sys.argv[1:]:
        print(f"chapter_budget.py: {sys.argv[1]}: legal are no arguments", file=sys.stderr)
        return 2
    rows, faults = check(Path(__file__).resolve().parents[1])
    print(f"{'chapter':<22}{'main.cpp':>10}{'budget':>8}{'diff':>8}{'budget':>8}")
    for row, code, diff in rows:
        over = "  over" if code > row.main_budget or diff > row.diff_budget else ""
        print(f"{row.name:<22}{code:>10}{row.main_budget:>8}{diff:>8}{row.diff_budget:>8}{over}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
