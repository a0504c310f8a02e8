#!/usr/bin/env python3
"""The look of the files: clean whitespace, lengths within the design's, scripts that parse and run."""

import os
import re
import subprocess

from house import CODE, all_files, floor, tell

# Suffixes of files that are written by hand.
TEXT = CODE | {".md", ".py", ".sh", ".txt", ".cmake", ".json", ".toml", ".css", ".html", ".in"}
TEXT_NAMES = {".clang-format", ".clang-tidy", ".gitignore"}

# The contents page of all operations: one comment and one line each, and they stay together.
LENGTH_OF_ONE_FILE = {"kernels/kernels.h": 400}


def longest(where, top, path):
    """How many lines a file may have; infinite where there is no such limit."""
    if top == "tests" and path.suffix in CODE | {".py"}:
        return 300
    if path.suffix in {".h", ".cuh"}:
        return LENGTH_OF_ONE_FILE.get(where, 250 if top == "chapters" else 200)
    if path.suffix in {".cpp", ".cu"} and path.name != "main.cpp":  # its budget: check_chapters.py
        return 400
    return float("inf")


def faults_of_text(where, top, path):
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield f"{where}:{number}: tab"
        # A diff shows an unchanged blank line as one blank.
        if line != line.rstrip() and not (path.suffix == ".md" and line == " "):
            yield f"{where}:{number}: blanks at the end of the line"
    if text and not re.search(r"[^\n]\n\Z", text):
        yield f"{where}: wants exactly one line end at its end"
    if (path.suffix in {".h", ".cuh"} or path.name == "main.cpp") and not text.startswith("//"):
        yield f"{where}: begins with no comment on what it is for"
    lines, limit = text.count("\n"), longest(where, top, path)
    if lines > limit:
        yield f"{where}: {lines} lines, limit {limit}"


def faults_of_script(where, top, path):
    run = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    yield from (f"{where}: {line}" for line in run.stderr.splitlines())
    # The texts call those of scripts/ by their name; scripts of tests are given to bash.
    if top == "scripts" and not os.access(path, os.X_OK):
        yield f"{where}: not executable: chmod +x"


def check(root):
    faults = []
    for path in all_files(root):
        where, top = str(path.relative_to(root)), floor(root, path)
        if path.suffix in TEXT or path.name in TEXT_NAMES:
            faults += faults_of_text(where, top, path)
        if path.suffix == ".sh" or b"bash" in path.read_bytes()[:40]:
            faults += faults_of_script(where, top, path)
    return faults


if __name__ == "__main__":
    tell(check)
