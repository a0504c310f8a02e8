#!/usr/bin/env python3
"""The look of the files: clean whitespace, lengths within the design's, scripts that parse and run."""

import stat
import subprocess

from house import CODE, all_files, floor, tell

# Suffixes of files that are written by hand.
TEXT = CODE | {".md", ".py", ".sh", ".txt", ".cmake", ".json", ".toml", ".css", ".html", ".in"}
TEXT_NAMES = {".clang-format", ".clang-tidy", ".gitignore"}

# The contents page of all operations: one comment and one line each, and they stay together.
LENGTH_OF_ONE_FILE = {"kernels/kernels.h": 400}


def longest(root, path):
    """How many lines a file may have; None where there is no such limit."""
    here = path.relative_to(root)
    if str(here) in LENGTH_OF_ONE_FILE:
        return LENGTH_OF_ONE_FILE[str(here)]
    top = floor(root, path)
    if top == "tests" and path.suffix in CODE | {".py"}:
        return 300
    if path.suffix in {".h", ".cuh"}:
        return 250 if top == "chapters" else 200
    if path.suffix in {".cpp", ".cu"}:
        return 400 if path.name != "main.cpp" else None  # its budget: check_chapters.py
    return None


def check_file(root, path):
    where = path.relative_to(root)
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    faults = []
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            faults.append(f"{where}:{number}: tab")
        # A diff shows an unchanged blank line as one blank.
        if line != line.rstrip() and not (path.suffix == ".md" and line == " "):
            faults.append(f"{where}:{number}: blanks at the end of the line")
    if text and not text.endswith("\n") or text.endswith("\n\n"):
        faults.append(f"{where}: wants exactly one line end at its end")
    explains = path.suffix in {".h", ".cuh"} or path.name == "main.cpp"
    if explains and not text.startswith("//"):
        faults.append(f"{where}: begins with no comment on what it is for")
    limit = longest(root, path)
    if limit and len(lines) - 1 > limit:
        faults.append(f"{where}: {len(lines) - 1} lines, limit {limit}")
    return faults


def is_shell(path):
    with path.open("rb") as file:
        return path.suffix == ".sh" or b"bash" in file.readline(40)


def check_script(root, path):
    if not is_shell(path):
        return []
    run = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    faults = [f"{path.relative_to(root)}: {line}" for line in run.stderr.splitlines()]
    # The texts call those of scripts/ by their name; scripts of tests are given to bash.
    if floor(root, path) == "scripts" and not path.stat().st_mode & stat.S_IXUSR:
        faults.append(f"{path.relative_to(root)}: not executable: chmod +x")
    return faults


def check(root):
    faults = []
    for path in all_files(root):
        if path.suffix in TEXT or path.name in TEXT_NAMES:
            faults += check_file(root, path)
        faults += check_script(root, path)
    return faults


if __name__ == "__main__":
    tell(check)
