#!/usr/bin/env python3
"""The tree of chapters, as scripts/chapters.txt has it, and its picture in the README.

    scripts/chapter_tree.py            print the picture
    scripts/chapter_tree.py --embed    write it into README.md
    scripts/chapter_tree.py --check    fail if README.md holds another

In README.md it stands between the lines <!-- tree:begin --> and <!-- tree:end -->. Other scripts
import from here.
"""

import sys
from dataclasses import dataclass

import marked
from marked import ROOT

LAST_OF_TRUNK = 13


@dataclass(frozen=True)
class Chapter:
    """A row of the table."""

    name: str
    parents: tuple
    main_budget: int  # lines of code of main.cpp
    diff_budget: int
    way: str  # how lines of the diff count: "changed", "new", "apart"; "none": no diff

    @property
    def number(self):
        return int(self.name[:2])

    @property
    def in_trunk(self):
        return self.number <= LAST_OF_TRUNK

    @property
    def trains(self):
        """Whether it trains on the texts that all such programs take."""
        return self.way not in ("none", "apart")

    @property
    def has_diff(self):
        return self.way != "none"


def chapters(root=ROOT):
    """All rows, parents first: {name: Chapter}."""
    table = {}
    for line in (root / "scripts/chapters.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, parents, main, diff, way = line.split()
            above = () if parents == "-" else tuple(parents.split(","))
            table[name] = Chapter(name, above, int(main), int(diff), way)
    return table


def ancestors(name, table):
    """The chapter's name, and the names of all chapters that it descends from."""
    found = {name}
    for parent in table[name].parents:
        found |= ancestors(parent, table)
    return found


def faults_of_table(root=ROOT):
    """Faults of the table: a parent that is unknown or stands below its child, a number that stands twice."""
    faults, above = [], set()
    for name, row in chapters(root).items():
        unknown = [parent for parent in row.parents if parent not in above]
        if unknown:
            faults.append(f"scripts/chapters.txt: {name}: no row {', '.join(unknown)} above it")
        if any(other[:2] == name[:2] for other in above):
            faults.append(f"scripts/chapters.txt: {name}: its number is another's")
        above.add(name)
    return faults


def draw(table):
    """Lines of the picture. A chapter stands below its first parent: the first child in the trunk
    goes on in the same column, the others hang beside it."""
    children = {name: [] for name in table}
    for name, row in table.items():
        if row.parents:
            children[row.parents[0]].append(name)

    def lines_of(name):
        row, beside = table[name], list(children[name])
        trunk = [child for child in beside if row.in_trunk and table[child].in_trunk]
        if trunk:
            beside.remove(trunk[0])
        also = row.parents[1:]
        lines = [name + (f" (and {', '.join(also)})" if also else "")]
        for child in beside:
            fork, bar = ("├── ", "│   ") if trunk or child != beside[-1] else ("└── ", "    ")
            first, *rest = lines_of(child)
            lines += [fork + first, *(bar + line for line in rest)]
        return lines + ["│", *lines_of(trunk[0])] if trunk else lines

    roots = [name for name, row in table.items() if not row.parents]
    return [line for name in roots for line in lines_of(name)]


def faults_of(root=ROOT, repair=False):
    """What is wrong with the picture in README.md; `repair` draws it anew."""
    picture = "\n".join(["```", *draw(chapters(root)), "```"])
    return marked.settle(root, "README.md", lambda text: marked.replaced(text, "tree", picture), repair,
                         "scripts/chapter_tree.py --embed")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(marked.main(sys.argv[1:], faults_of))
    print("\n".join(draw(chapters())))
