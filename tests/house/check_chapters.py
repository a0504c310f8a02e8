#!/usr/bin/env python3
"""Every chapter keeps the contract: its README's sections, its budgets, a diff that is fresh. So
is the tree of chapters in README.md."""

import re
import subprocess
import sys

from house import ROOT, tell

sys.path.insert(0, str(ROOT / "scripts"))
import chapter_budget  # noqa: E402
import chapter_tree  # noqa: E402

SECTIONS = [
    "## The problem",
    "## The idea",
    "## The diff",
    "## What must be equal",
    "## Predicted and measured",
    "## How to run it",
    "## Exercises",
]


def headings(text):
    """Headings of the second level, outside of code blocks."""
    found, in_code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif line.startswith("## ") and not in_code:
            found.append(line.rstrip())
    return found


def check_top(where, text):
    """Below its title a README says in three lines what it is about."""
    top = re.match(r"# [^\n]+\n\n(?:> - [^\n]+\n){3}\n", text)
    return [] if top else [f"{where}: wants three lines '> - ...' below its title: the chapter in short"]


def check_readmes(root):
    faults = []
    for folder in sorted((root / "chapters").glob("[0-9][0-9]_*")):
        readme = folder / "README.md"
        where = readme.relative_to(root)
        if not readme.is_file():
            faults.append(f"{where}: missing")
            continue
        text = readme.read_text(encoding="utf-8")
        if headings(text) != SECTIONS:
            faults.append(f"{where}: wants these sections in order: {', '.join(SECTIONS)}")
        faults += check_top(where, text)
    return faults


def check_names(root):
    """Every folder of chapters/ is in the table and has a main.cpp."""
    known = chapter_tree.read_table(root)
    faults = []
    for folder in sorted((root / "chapters").glob("[0-9][0-9]_*")):
        if folder.name not in known:
            faults.append(f"chapters/{folder.name}: not in scripts/chapters.txt")
        if not (folder / "main.cpp").is_file():
            faults.append(f"chapters/{folder.name}: no main.cpp")
    return faults


def check_diffs(root):
    script = root / "scripts/chapter_diff.sh"
    run = subprocess.run(["bash", script, "--check"], capture_output=True, text=True)
    return (run.stdout + run.stderr).splitlines()


def check(root):
    faults = check_names(root) + check_readmes(root) + chapter_tree.faults_of_readme(root)
    return faults + chapter_budget.check(root)[1] + check_diffs(root)


if __name__ == "__main__":
    tell(check)
