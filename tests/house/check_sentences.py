#!/usr/bin/env python3
"""Sentences of READMEs and docs have at most 40 words: a reader should not have to read one twice.

A formula, a link, a name in backquotes count as one word each; code, tables' rules and pictures do
not count.
"""

import re

from house import all_files, tell

LIMIT = 40
ONE_WORD = re.compile(r"`[^`\n]*`|\$[^$\n]*\$|!?\[([^\]]*)\]\([^)]*\)")
FENCE = re.compile(r"^( *)(```|\$\$).*?^ *\2$|^\$\$.*\$\$$|<!--.*?-->|^ *\|[-:| ]+\|$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^(?:#+ |> ?-? ?|[-*] |\d+\. )", re.MULTILINE)  # a heading, an item
END = re.compile(r"[.!?][)\"*_]*(?:\s|$)|\|")


def prose(text):
    """The text with all that is not a sentence left out, and names as one word."""
    text = FENCE.sub("\n\n", text)
    text = ONE_WORD.sub(lambda m: m[1] if m[1] is not None and not m[0].startswith("!") else "x", text)
    return BLOCK.sub("\n\n", text)


def long_sentences(text):
    """[(words, sentence)] of those over the limit."""
    found = []
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        for sentence in END.split(paragraph):
            words = len([word for word in sentence.split() if re.search(r"\w", word)])
            if words > LIMIT:
                found.append((words, " ".join(sentence.split())))
    return found


def pages(root):
    return [path for path in all_files(root) if path.suffix == ".md"]


def check(root):
    return [f"{path.relative_to(root)}: {words} words: {sentence[:70]}..."
            for path in pages(root) for words, sentence in long_sentences(path.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    tell(check)
