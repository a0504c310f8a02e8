#!/usr/bin/env python3
"""The README's picture and its table of chapters say what the tree says (scripts/front_page.py)."""

import sys

from house import ROOT, tell

sys.path.insert(0, str(ROOT / "scripts"))
import front_page  # noqa: E402


def check(root):
    unanswered = front_page.ANSWERS.keys() ^ front_page.chapter_tree.chapters(root).keys()
    if unanswered:
        return [f"scripts/front_page.py: ANSWERS and chapters/ differ in {', '.join(sorted(unanswered))}"]
    return front_page.faults_of(root)


if __name__ == "__main__":
    tell(check)
