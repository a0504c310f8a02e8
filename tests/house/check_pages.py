#!/usr/bin/env python3
"""Pages are read easily, and GitHub shows them as they are meant.

A sentence has at most 40 words: a reader should not have to read one twice. A formula, a link, a name
in backquotes count as one word each; code, tables' rules and pictures do not count.

In a formula GitHub takes a backslash before a punctuation mark for Markdown's own and drops it: a thin
space becomes a comma, and a line break of a matrix is lost. Commands of letters stay, and so does a
backslash before a blank. (A block of ```math is left alone, and so is code.)
"""

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


def check(root):
    pages = {path.relative_to(root): path.read_text(encoding="utf-8")
             for path in all_files(root) if path.suffix == ".md"}
    return [f"{name}: {said}" for name, text in pages.items()
            for said in [*long_sentences(text), *lost_backslashes(text)]]


if __name__ == "__main__":
    tell(check)
