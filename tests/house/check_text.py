#!/usr/bin/env python3
"""The look of the files: clean whitespace, scripts that parse and run.

Pages are read easily, and GitHub shows them as they are meant. A sentence has at most 40 words: a reader
should not have to read one twice. A formula, a link, a name in backquotes count as one word each; code,
tables' rules and pictures do not count.

In a formula GitHub takes a backslash before a punctuation mark for Markdown's own and drops it: a thin
space becomes a comma, and a line break of a matrix is lost. Commands of letters stay, and so does a
backslash before a blank. (A block of ```math is left alone, and so is code.)

A link within the tree leads to a file, and to a heading of it.
"""

import functools
import os
import re
import subprocess

from house import CODE, all_files, floor, tell

# Suffixes of files that are written by hand.
TEXT = CODE | {".md", ".py", ".sh", ".txt", ".cmake", ".json", ".toml", ".css", ".html", ".in"}
TEXT_NAMES = {".clang-format", ".clang-tidy", ".gitignore"}

WORDS = 40  # in a sentence
ONE_WORD = re.compile(r"`[^`\n]*`|\$[^$\n]*\$|!?\[([^\]]*)\]\([^)]*\)")
FENCE = re.compile(r"^( *)(```|\$\$).*?^ *\2$|^\$\$.*\$\$$|<!--.*?-->|^ *\|[-:| ]+\|$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^(?:#+ |> ?-? ?|[-*] |\d+\. )", re.MULTILINE)  # a heading, an item
END = re.compile(r"[.!?][)\"*_]*(?:\s|$)|\|")

PAGE_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?! )[^$\n]*\n?[^$\n]*[^$\s]\$(?!\d)", re.DOTALL)
LOST = re.compile(r"\\[^\w\s]")
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def faults_of_text(where, path):
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


@functools.cache
def anchors(path):
    """What GitHub makes of the words of each heading."""
    heads = HEADING.findall(PAGE_CODE.sub(lambda code: "" if "\n" in code[0] else code[0], path.read_text(encoding="utf-8")))
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    slugs = [re.sub(r"[^\w\- ]", "", word).replace(" ", "-") for word in words]
    return {slug + f"-{slugs[:i].count(slug)}" * (slug in slugs[:i]) for i, slug in enumerate(slugs)}


def dead_links(text, path):
    for target, anchor in LINK.findall(PAGE_CODE.sub("", text)):
        there = path.parent / target if target else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there.resolve())):
            yield f"a link leads nowhere: {target}{'#' * bool(anchor)}{anchor}"


def faults_of_page(where, path):
    text = path.read_text(encoding="utf-8")
    yield from (f"{where}: {said}" for said in [*long_sentences(text), *lost_backslashes(text), *dead_links(text, path)])


def check(root):
    faults = []
    for path in all_files(root):
        where, top = str(path.relative_to(root)), floor(root, path)
        if path.suffix in TEXT or path.name in TEXT_NAMES:
            faults += faults_of_text(where, path)
        if path.suffix == ".md":
            faults += faults_of_page(where, path)
        if path.suffix == ".sh" or b"bash" in path.read_bytes()[:40]:
            faults += faults_of_script(where, top, path)
    return faults


if __name__ == "__main__":
    tell(check)
