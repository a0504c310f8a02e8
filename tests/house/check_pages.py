#!/usr/bin/env python3
"""Pages are read easily, their links lead somewhere, and GitHub shows them as they are meant.

A sentence has at most 40 words: a reader should not have to read one twice. A formula, a link, a name
in backquotes count as one word each; code, tables' rules and pictures do not count.

In a formula GitHub takes a backslash before a punctuation mark for Markdown's own and drops it: a thin
space becomes a comma, and a line break of a matrix is lost. Commands of letters stay, and so does a
backslash before a blank. (A block of ```math is left alone, and so is code.)
"""

import functools
import re

from house import all_files, tell

LIMIT = 40
ONE_WORD = re.compile(r"`[^`\n]*`|\$[^$\n]*\$|!?\[([^\]]*)\]\([^)]*\)")
FENCE = re.compile(r"^( *)(```|\$\$).*?^ *\2$|^\$\$.*\$\$$|<!--.*?-->|^ *\|[-:| ]+\|$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^(?:#+ |> ?-? ?|[-*] |\d+\. )", re.MULTILINE)  # a heading, an item
END = re.compile(r"[.!?][)\"*_]*(?:\s|$)|\|")

CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?! )[^$\n]*\n?[^$\n]*[^$\s]\$(?!\d)", re.DOTALL)
LOST = re.compile(r"\\[^\w\s]")

BLOCK_OF_CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")


def long_sentences(text):
    """What is said of each over the limit."""
    text = FENCE.sub("\n\n", text)
    text = ONE_WORD.sub(lambda m: m[1] if m[1] is not None and not m[0].startswith("!") else "x", text)
    for paragraph in re.split(r"\n\s*\n", BLOCK.sub("\n\n", text)):
        for sentence in END.split(paragraph):
            words = len([word for word in sentence.split() if re.search(r"\w", word)])
            if words > LIMIT:
                yield f"{words} words: {' '.join(sentence.split())[:70]}..."


def lost_backslashes(text):
    for formula in FORMULA.findall(CODE.sub("", text)):
        for lost in LOST.findall(formula):
            yield f"GitHub loses the backslash of {lost} in {formula[:60]}"


@functools.cache
def anchors(page):
    """What GitHub makes of the headings of a page."""
    found = set()
    for words in HEADING.findall(BLOCK_OF_CODE.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(anchor if anchor not in found else
                  next(again for i in range(1, 99) if (again := f"{anchor}-{i}") not in found))
    return found


def broken_links(path, text):
    for target, anchor in LINK.findall(CODE.sub("", text)):
        page = path.parent / target if target else path
        if not page.exists():
            yield f"a link leads to {target}, which is not there"
        elif anchor and page.suffix == ".md" and anchor not in anchors(page):
            yield f"a link leads to {target}#{anchor}, which is no heading there"


def check(root):
    anchors.cache_clear()
    faults = []
    for path in (path for path in all_files(root) if path.suffix == ".md"):
        text = path.read_text(encoding="utf-8")
        faults += [f"{path.relative_to(root)}: {said}" for said in
                   [*long_sentences(text), *lost_backslashes(text), *broken_links(path, text)]]
    return faults


if __name__ == "__main__":
    tell(check)
