#!/usr/bin/env python3
"""How large the tree is, and whether that is within scripts/size_limits.txt.

    scripts/size.py            print the sizes beside their limits; status 1 if one is above its own
    scripts/size.py --set      write today's sizes as the limits

Lines of code are neither blank nor comment: C++, CUDA, Python, shell and CMake. A chapter is counted all
in: its folder, tests/NN_*, labs/NN*. Toys stand apart from their chapters; each has at most 100 lines.
CONTRIBUTING.md says when a limit may rise.
"""

import re
import sys
from collections import Counter

from marked import ROOT

LIMITS = "scripts/size_limits.txt"
FOLDERS = ["bench", "chapters", "cmake", "common", "docs", "kernels", "labs", "scripts", "tests"]
C, SCRIPT = {".cpp", ".h", ".cu", ".cuh", ".inc"}, {".py", ".sh", ".cmake"}
TOY = 100


def code_lines(path):
    """Lines of a source that are neither blank nor comment."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in C:
        text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", text), flags=re.DOTALL)
    elif path.suffix != ".js":
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return sum(1 for line in text.splitlines() if line.strip())


def places(where):
    """The names under which a file of this path counts. Made files, the page of chapter 23, count nowhere."""
    top, suffix = where.parts[0], where.suffix
    if where.name == "toy.cpp" and top == "chapters":
        return [f"toy {where.parts[1][:2]}"]
    if suffix in C - {".inc"} | SCRIPT or where.name == "CMakeLists.txt":
        chapter = len(where.parts) > 2 and top in {"chapters", "tests", "labs"} and re.match(r"\d\d", where.parts[1])
        return ["code", f"code {top}"] + ([f"chapter {chapter[0]}"] if chapter else [])
    if suffix == ".txt" and top == "tests" and where.parts[1] not in {"fuzz", "golden"}:
        return ["rows of test tables"]
    return {".toml": ["TOML"], ".js": ["JavaScript"], ".md": ["words of Markdown"]}.get(suffix, [])


def sizes(root):
    found = Counter()
    for path in [path for folder in FOLDERS for path in (root / folder).rglob("*")] + list(root.glob("*")):
        where = path.relative_to(root)
        for place in places(where) if path.is_file() and "__pycache__" not in where.parts else ():
            found[place] += len(path.read_text(encoding="utf-8").split()) if path.suffix == ".md" else code_lines(path)
    return found


def limits(root):
    lines = (root / LIMITS).read_text(encoding="utf-8").splitlines()
    return {name: int(limit) for limit, name in (line.split(maxsplit=1) for line in lines if line[:1] != "#")}


def check(root):
    known, faults = limits(root), []
    for name, size in sizes(root).items():
        limit = TOY if name.startswith("toy ") else known.get(name, 0)
        if size > limit:
            faults.append(f"{LIMITS}: {name}: {size}, limit {limit}")
    return faults


def main(words):
    if words not in ([], ["--set"]):
        print(f"size.py: {' '.join(words)}: legal is --set, or nothing", file=sys.stderr)
        return 2
    found = sizes(ROOT)
    if words:
        head = "# What scripts/size.py allows: lines, or words. CONTRIBUTING.md says when a limit may rise.\n"
        rows = (f"{found[name]:7} {name}\n" for name in sorted(found) if not name.startswith("toy "))
        (ROOT / LIMITS).write_text(head + "".join(rows), encoding="utf-8")
    known = limits(ROOT)
    for name in sorted(found):
        print(f"{found[name]:7} of {TOY if name.startswith('toy ') else known.get(name, 0):6}  {name}")
    faults = check(ROOT)
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
