#!/usr/bin/env python3
"""Carries what was edited in a chapter's main.cpp since the last commit to those that descend from it.

    scripts/carry.py            every main.cpp that the working tree has changed is carried on
    scripts/carry.py REVISION   the same, since another commit

`git merge-file` goes down the tree of scripts/chapters.txt, parents first, so a line that chapters share
is edited once. A main.cpp that has lines of its own at that place gets marks of a conflict, and nothing
is carried beyond it: take the marks out, and run the script again. Afterwards: scripts/renew.sh.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import chapter_tree
from marked import ROOT

MARK = "<<<<<<< "


def carry(root, since):
    """Names of the chapters that were changed, and of those that have conflicts."""
    changed, conflicts, before = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, row in chapter_tree.chapters(root).items():
            path = root / "chapters" / name / "main.cpp"
            old = subprocess.run(["git", "show", f"{since}:./{path.relative_to(root)}"], cwd=root, capture_output=True)
            before[name] = Path(folder, name)
            before[name].write_bytes(path.read_bytes() if old.returncode else old.stdout)
            text = path.read_bytes()
            for parent in row.parents if row.has_diff and MARK.encode() not in text else ():
                new = root / "chapters" / parent / "main.cpp"
                if parent not in conflicts and new.read_bytes() != before[parent].read_bytes():
                    subprocess.run(["git", "merge-file", "-L", name, "-L", "before", "-L", parent, path, before[parent], new])
            if path.read_bytes() != text:
                changed.append(name)
            if MARK in path.read_text(encoding="utf-8") or set(row.parents) & set(conflicts):
                conflicts.append(name)
    return changed, conflicts


def main(words):
    since = words[0] if words else "HEAD"
    known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"], cwd=ROOT, capture_output=True)
    if len(words) > 1 or known.returncode:
        print(f"carry.py: {' '.join(words)}: legal is one commit, or nothing", file=sys.stderr)
        return 2
    changed, conflicts = carry(ROOT, since)
    print("changed:", *changed)
    if conflicts:
        print("conflicts, in these or above them:", *conflicts)
    return 1 if conflicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
