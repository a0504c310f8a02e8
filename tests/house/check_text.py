#!/usr/bin/env python3
"""The look of the files: clean whitespace, lengths within the design's, scripts that parse and run.

Pages are read easily, and GitHub shows them as they are meant. A sentence has at most 40 words: a reader
should not have to read one twice. A formula, a link, a name in backquotes count as one word each; code,
tables' rules and pictures do not count.

In a formula GitHub takes a backslash before a punctuation mark for Markdown's own and drops it: a thin
space becomes a comma, and a line break of a matrix is lost. Commands of letters stay, and so does a
backslash before a blank. (A block of ```math is left alone, and so is code.)
"""

import os
import re
import subprocess

from house import CODE, all_files, floor, tell

# Suffixes of files that are written by hand.
TEXT = CODE | {".md", ".py", ".sh", ".txt", ".cmake", ".json", ".toml", ".css", ".html", ".in"}
TEXT_NAMES = {".clang-format", ".clang-tidy", ".gitignore"}

# The contents page of all operations: one comment and one line each, and they stay together.
LENGTH_OF_ONE_FILE = {"kernels/kernels.h": 400}

WORDS = 40  # in a sentence
ONE_WORD = re.compile(r"`[^`\n]*`|\$[^$\n]*\$|!?\[([^\]]*)\]\([^)]*\)")
FENCE = re.compile(r"^( *)(```|\$\$).*?^ *\2$|^\$\$.*\$\$$|<!--.*?-->|^ *\|[-:| ]+\|$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^(?:#+ |> ?-? ?|[-*] |\d+\. )", re.MULTILINE)  # a heading, an item
END = re.compile(r"[.!?][)\"*_]*(?:\s|$)|\|")

PAGE_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?! )[^$\n]*\n?[^$\n]*[^$\s]\$(?!\d)", re.DOTALL)
LOST = re.compile(r"\\[^\w\s]")


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


def long_sentences(text):
    """A message for each sentence over the limit."""
    text = FENCE.sub("\n\n", text)
    text = ONE_WORD.sub(lambda m: m[1] if m[1] is not None and not m[0].startswith("!") else "x", text)
    for paragraph in re.split(r"\n\s*\n", BLOCK.sub("\n\n", text)):
        for sentence in END.split(paragraph):
            words = len([word for word in sentence.split() if re.search(r"\w", word)])
            if words > WORDS:
                yield f"{words} words: {' '.join(sentence.split())[:70]}..."


def lost_backslashes(text):
    for formula in FORMULA.findall(PAGE_CODE.sub("", text)):
        for lost in LOST.findall(formula):
            yield f"GitHub loses the backslash of {lost} in {formula[:60]}"


def faults_of_page(where, path):
    text = path.read_text(encoding="utf-8")
    yield from (f"{where}: {said}" for said in [*long_sentences(text), *lost_backslashes(text)])


def check(root):
    faults = []
    for path in all_files(root):
        where, top = str(path.relative_to(root)), floor(root, path)
        if path.suffix in TEXT or path.name in TEXT_NAMES:
            faults += faults_of_text(where, top, path)
        if path.suffix == ".md":
            faults += faults_of_page(where, path)
        if path.suffix == ".sh" or b"bash" in path.read_bytes()[:40]:
            faults += faults_of_script(where, top, path)
    return faults


if __name__ == "__main__":
    tell(check)
