#!/usr/bin/env python3
"""Who may know whom.

kernels knows nobody; common knows kernels; a chapter knows common, kernels and the chapters that it
descends from; labs and benchmarks know all these; tests know everybody, and nobody knows them. The
folders of common are rooms on one floor, which do not know each other; save and run stand on them,
and files beside the folders are for all. No circles, between files or between folders; a chapter's
proof/ counts with the chapter. Headers of the project are included in quotes, by their path from
the root. The first chapter, whose reader is to hold all of it, reaches few headers.

Where CMake chooses between folders of headers, a bare name stands for one of each.
"""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from house import ROOT, code_files, tell

sys.path.insert(0, str(ROOT / "scripts"))
import chapter_tree  # noqa: E402

BELOW = {
    "kernels": ["kernels"],
    "common": ["kernels", "common"],
    "chapters": ["kernels", "common", "chapters"],
    "labs": ["kernels", "common", "chapters", "labs"],
    "bench": ["kernels", "common", "chapters", "bench"],
    "tests": ["kernels", "common", "chapters", "labs", "bench", "tests"],
}
ROOMS = {"": [], "comm": [], "data": [], "hf": [], "model": [], "tokens": []}
ROOMS["save"] = [*ROOMS]
ROOMS["run"] = [*ROOMS]
FIRST, MOST_HEADERS = "chapters/01_sgd/main.cpp", 40
CHOSEN = ["kernels/cuda/native", "kernels/cuda/on_cpu"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def chapter_of(path):
    """07_ddp for chapters/07_ddp/main.cpp; None outside of chapters."""
    match = re.match(r"chapters/(\d\d_\w+)/", str(path))
    return match[1] if match else None


def is_chosen(root, here, name):
    """Whether `name`, bare, is in all folders that CMake chooses between for `here`."""
    return "/" not in name and "cuda" in here.parts and all((root / c / name).is_file() for c in CHOSEN)


def fault_of_include(root, here, bracket, name):
    """What is wrong when the file `here` (from the root) includes `name`; None if nothing."""
    top = name.split("/")[0]
    if bracket == "<":
        return f"<{name}> is of the project: quotes" if top in BELOW else None
    if is_chosen(root, here, name):
        return None
    if not (root / name).is_file() or ".." in name:
        return f'"{name}" is no file, seen from the root'
    if top not in BELOW[here.parts[0]]:
        return f"{here.parts[0]} may not know {name}"
    room, next_room = ("/".join(Path(path).parts[1:-1]) for path in (here, name))
    if here.parts[0] == top == "common" and next_room not in ["", room, *ROOMS[room]]:
        return f"{here.parent} may not know {name}; it knows {', '.join(ROOMS[room]) or 'no other room'}"
    mine, other, table = chapter_of(here), chapter_of(name), chapter_tree.chapters(root)
    if mine in table and other and other not in chapter_tree.ancestors(mine, table):
        return f"{mine} may not know {name}: it does not descend from {other}"
    return None


def reached_from(file, files):
    """Every file that `file` includes, or that one of these includes."""
    reached, todo = set(), [file]
    while todo:
        new = files.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return reached


def check(root):
    faults, files, folders = [], {}, {}
    for path in code_files(root):
        here = path.relative_to(root)
        if here.parts[0] not in BELOW:
            continue
        for bracket, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if fault := fault_of_include(root, here, bracket, name):
                faults.append(f"{here}: {fault}")
            elif bracket == '"' and not is_chosen(root, here, name):
                files.setdefault(str(here), set()).add(name)
                ends = [folder.removesuffix("/proof") for folder in (str(here.parent), name.rpartition("/")[0])]
                if ends[0] != ends[1]:
                    folders.setdefault(ends[0], set()).add(ends[1])
    if (reached := len(reached_from(FIRST, files))) > MOST_HEADERS:
        faults.append(f"{FIRST} reaches {reached} headers of the project; it may reach {MOST_HEADERS}")
    for graph in [files, folders]:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as found:
            faults.append("circle: " + " -> ".join(reversed(found.args[1])))
    return faults


if __name__ == "__main__":
    tell(check)
