#!/usr/bin/env python3
"""Every chapter keeps the contract: its README's sections, its budgets, a diff that is fresh. So
is the tree of chapters in README.md."""

import functools
import re
import sys

from house import ROOT, code_files, floor, tell

sys.path.insert(0, str(ROOT / "scripts"))
import chapter_budget  # noqa: E402
import chapter_diff  # noqa: E402
import chapter_tree  # noqa: E402

SECTIONS = [
    "## The problem",
    "## The idea",
    "## The diff",
    "## Predicted and measured",
    "## How to run it",
    "## Exercises",
    "## Same bits",
]


WORDS = 4000  # what a README may have without its diff


def check_top(where, text):
    """Below its title a README says in three lines what it is about."""
    top = re.match(r"# [^\n]+\n\n(?:> - [^\n]+\n){3}\n", text)
    return [] if top else [f"{where}: wants three lines '> - ...' below its title: the chapter in short"]


def check_types(root, where, text):
    """The box of types names types that there are."""
    box = re.search(r"\*\*Types you will meet\*\*\n\n((?:- [^\n]+\n)+)", text)
    faults = []
    for line in box[1].splitlines() if box else []:
        name = re.match(r"- `(\w+)`: ", line)
        if not name or name[1] not in types(root):
            faults.append(f"{where}: no type of the project in its box of types: {line}")
    return faults


def check_exercises(where, text):
    """Each says how hard and how long it is, and at least half say how to check them."""
    items = re.split(r"^\d+\. ", text.partition("## Exercises\n")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
    faults = [f"{where}: exercise {i} wants to begin with stars and minutes: ★★ (30 min)"
              for i, item in enumerate(items, 1) if not re.match(r"★{1,3} \(\d+ min\) ", item)]
    checked = sum("*Check.*" in item for item in items)
    if 2 * checked < len(items):
        faults.append(f"{where}: {checked} of {len(items)} exercises say how to check them, fewer than half")
    return faults


def check_signposts(root, where, text):
    """A README begins with the toy, says what to read and what others call it, and names its lab."""
    number, faults = where.parent.name[:2], []
    wanted = {"**A way through.**": True, "**Elsewhere.**": True,
              "**First: the toy": (root / where.parent / "toy.cpp").is_file(),
              "**Lab.**": any((root / "labs").glob(f"{number}_*"))}
    faults += [f"{where}: wants a paragraph {words}" for words, due in wanted.items() if due and f"\n{words}" not in text]
    words = len(re.sub(r"<!-- diff:begin -->.*?<!-- diff:end -->", "", text, flags=re.DOTALL).split())
    if words > WORDS:
        faults.append(f"{where}: {words} words without its diff, at most {WORDS}")
    return faults


@functools.cache
def types(root):
    """Names of all structs, classes and enums outside of tests."""
    code = [path for path in code_files(root) if floor(root, path) != "tests"]
    found = (re.findall(r"^(?:struct|class|enum class) (?:\[\[\w+\]\] )?(\w+)", path.read_text(encoding="utf-8"), re.M)
             for path in code)
    return set().union(*found)


def check_folders(root):
    """Every folder of chapters/ is in the table, and has a main.cpp and a README with all its sections."""
    faults, known = [], chapter_tree.chapters(root)
    for folder in sorted({*(root / "chapters").glob("[0-9][0-9]_*"), *(root / "chapters" / name for name in known)}):
        if folder.name not in known:
            faults.append(f"chapters/{folder.name}: not in scripts/chapters.txt")
        where = folder.relative_to(root) / "README.md"
        missing = [name for name in ("README.md", "main.cpp") if not (folder / name).is_file()]
        faults += [f"chapters/{folder.name}/{name}: missing" for name in missing]
        if "README.md" in missing:
            continue
        text = (root / where).read_text(encoding="utf-8")
        outside_of_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        if re.findall(r"^## .+", outside_of_code, re.MULTILINE) != SECTIONS:
            faults.append(f"{where}: wants these sections in order: {', '.join(SECTIONS)}")
        faults += check_signposts(root, where, text) + check_top(where, text) + check_types(root, where, text) + check_exercises(where, text)
    return faults


def check_ranks(root):
    """docs/running.md says which chapters run on one rank: those whose program refuses more."""
    alone = {int(path.parent.name[:2]) for path in (root / "chapters").glob("*/main.cpp")
             if "refuse_ranks()" in path.read_text(encoding="utf-8")}
    said = re.search(r"All others, (.+?), run on one rank", (root / "docs/running.md").read_text(encoding="utf-8"))
    if not said:
        return ["docs/running.md: does not say which chapters run on one rank"]
    told = set()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", said[1]):
        told |= set(range(int(first), int(last or first) + 1))
    return [f"docs/running.md: says that {n:02} runs on one rank, or does not and it does" for n in sorted(told ^ alone)]


def check(root):
    return (check_folders(root) + chapter_tree.faults_of(root) + chapter_budget.check(root)[1] +
            chapter_diff.faults(root) + check_ranks(root))


if __name__ == "__main__":
    tell(check)
