#!/usr/bin/env python3
"""Slides of a chapter, made of its README, so that the two cannot drift.

    scripts/slides.py 08 > runs/08.md
    npx @marp-team/marp-cli --html runs/08.md     or another program that reads such slides
    scripts/slides.py 08 --no-diff                before the lab, whose answer is in the diff
    scripts/slides.py 08 --html > runs/08.html    a page that wants no network; by pandoc

The output is Markdown with a front matter, and `---` between slides, as Marp reads it. Pictures are
in it, as <img>, which is why Marp wants --html. A slide has the first sentences of a paragraph, an
equation, a picture, a part of the diff, or the first rows of a table. Without the diff nothing is in
it that the chapter's README quotes of the code.
"""

import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEIGHT = 16  # of a slide, in lines of text
COLUMNS, CODE_COLUMNS = 84, 130  # a line of text, and of what is set smaller: code and tables
SMALL = 0.62  # the height of such a line
SENTENCES, ROWS = 3, 14  # that are taken of a paragraph, and of a table
FRONT = """---
marp: true
math: mathjax
paginate: true
title: "{title}"
style: |
  section {{ font-size: 26px; }}
  pre {{ font-size: 15px; }}
  table {{ font-size: 15px; }}
  img {{ max-height: 500px; max-width: 100%; }}
---
"""
PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)")  # that leads nowhere from a slide
END = re.compile(r"(?<=[.!?])(?<![ (][A-Z]\.)\s+(?=[A-Z`*$(])")  # of a sentence; not an initial
LEAD = re.compile(r"^\*\*(.+?)[.:]?\*\*:?\s*")
IN_INCLUDES = re.compile(r"^[-+](//|#include|$)")  # a changed line that teaches nothing


# ---- the README ---------------------------------------------------------------------------------


def sections(text):
    """{heading: text}; what stands before the first heading has the name ""."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def blocks(text):
    """Paragraphs, lists, tables, equations, pictures, and code with its fence; without comments."""
    block, inside = [], False
    for line in [*re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).splitlines(), ""]:
        if line.startswith("```") or line.count("$$") == 1:
            inside = not inside
        if line.strip() or inside:
            block.append(line)
        elif block:
            yield "\n".join(block)
            block = []


def first_sentences(text, most):
    """The first sentences, and the last one if it ends with a colon."""
    found = END.split(" ".join(text.split()))
    return found[:most] if len(found) <= most or not text.endswith(":") else [*found[: most - 1], found[-1]]


def folded(line):
    """A line of code, broken into lines that are not too long."""
    return re.sub(rf"(.{{{CODE_COLUMNS - 4}}})(?=.)", r"\1\n    ", line)


def short(block, most=SENTENCES):
    """What a slide has of a block of the README."""
    if block.startswith("```"):
        return "\n".join(map(folded, block.splitlines()))
    if block.startswith("$$") or PICTURE.match(block):
        return block
    block = LINK.sub(r"\1", block)
    if block.startswith("|"):
        return "\n".join(block.splitlines()[: ROWS + 2])
    if re.match(r"[-*] |\d+\. ", block):
        items = re.split(r"\n(?=[-*] |\d+\. )", block)
        return "\n".join(first_sentences(item, 1)[0] for item in items)
    return "\n".join(f"- {sentence}" for sentence in first_sentences(block, most))


def hunks(diff):
    """The parts of a diff that change more than comments and includes, as code."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.removesuffix("```").splitlines()
        if any(line[:1] in "-+" and not IN_INCLUDES.match(line) for line in lines if line):
            yield "\n".join(["```diff", *lines, "```"])


# ---- slides -------------------------------------------------------------------------------------


def lines_of(line, columns):
    seen = re.sub(r"\]\([^)]*\)|\\[a-zA-Z]+|[{}*`$]", "", line)
    return max(1, -(-len(seen) // columns))


def height(block):
    """The height of a block on a slide, in lines of text."""
    lines = block.splitlines()
    if PICTURE.match(block):
        return HEIGHT
    if block.startswith("$$"):
        return 3
    if block.startswith(("```", "|")):
        return SMALL * sum(lines_of(line, CODE_COLUMNS) for line in lines) + 1
    return sum(lines_of(line, COLUMNS) for line in lines)


def cut(block):
    """A block in parts that fit: code, tables and lists between lines."""
    lines = block.splitlines()
    head, tail = (lines[:1], lines[-1:]) if block.startswith("```") else (lines[:2], []) if block.startswith("|") else ([], [])
    body, part = lines[len(head) : len(lines) - len(tail)], []
    for line in body:
        if part and height("\n".join([*head, *part, line, *tail])) > HEIGHT:
            yield "\n".join([*head, *part, *tail])
            part = []
        part.append(line)
    yield "\n".join([*head, *part, *tail])


def drawn(block, folder):
    """A picture as an element that holds its file; other blocks as they are."""
    found = PICTURE.match(block)
    if not found:
        return block
    data = base64.b64encode((folder / found[2]).read_bytes()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{found[1]}">'


def packed(heading, parts, folder):
    """Slides under one heading, filled from above."""
    slide, used = [], 0
    for part in [piece for part in parts for piece in ([part] if PICTURE.match(part) else cut(part))]:
        if slide and used + height(part) > HEIGHT:
            yield [f"## {heading}", *slide]
            slide, used = [], 0
        slide.append(drawn(part, folder))
        used += height(part)
    if slide:
        yield [f"## {heading}", *slide]


def topics(heading, text, most=SENTENCES):
    """(heading, blocks): a paragraph that begins with bold words is a topic of its own."""
    found = [(heading, [])]
    for block in blocks(text):
        lead = LEAD.match(block)
        if lead:
            found.append((LINK.sub(r"\1", lead[1]), []))
            block = block[lead.end() :]
        if block:
            found[-1][1].append(short(block, most))
    return [topic for topic in found if topic[1]]


def without_code(text):
    """A README without its diff and without what it quotes of the sources."""
    for begin, end in [("diff:begin", "diff:end"), ("quote: ", "quote:end")]:
        text = re.sub(rf"<!-- {begin}.*?<!-- {end} -->", "", text, flags=re.DOTALL)
    return text


def slides(folder, diff_too=True):
    """The slides of a chapter, each a list of blocks."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    parts = sections(text if diff_too else without_code(text))
    title, *lead = blocks(parts[""])
    yield [title, *(re.sub(r"^> ?", "", LINK.sub(r"\1", block), flags=re.MULTILINE) for block in lead)]
    for name in ["The problem", "The idea", "The diff", "Predicted and measured", "Same bits"]:
        text = parts.get(name, "")
        diff = re.search(r"^```diff\n.*?^```$", text, re.MULTILINE | re.DOTALL)
        text = text.replace(diff[0], "") if diff else text
        for heading, found in topics(name, text):
            yield from packed(heading, found, folder)
        if diff:
            yield from packed("The diff", hunks(diff[0]), folder)
    if (ROOT / "labs" / folder.name).is_dir():
        yield ["## Write it yourself", f"`labs/lab.py new {folder.name[:2]}`, then `labs/lab.py check {folder.name[:2]}`"]


def deck(folder, diff_too=True):
    found = list(slides(folder, diff_too))
    title = found[0][0].removeprefix("# ")
    return FRONT.format(title=title) + "\n" + "\n\n---\n\n".join("\n\n".join(slide) for slide in found) + "\n"


def as_page(text):
    """A deck as one HTML page, which loads nothing: equations are MathML, pictures are inside."""
    words = ["pandoc", "--from=markdown", "--to=html5", "--mathml"]
    run = subprocess.run(words, input=text.removeprefix("---").partition("\n---\n")[2], capture_output=True, text=True, check=True)
    found = re.split(r"<hr */?>", run.stdout)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", found[0], re.DOTALL)[1]
    sections_of = "\n".join(f"<section>{slide}</section>" for slide in found)
    page = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return page.replace("@title@", " ".join(title.split())).replace("@slides@", sections_of)


def main(words):
    numbers, flags = [w for w in words if not w.startswith("-")], {w for w in words if w.startswith("-")}
    folders = list((ROOT / "chapters").glob(f"{numbers[0]}_*")) if len(numbers) == 1 and re.fullmatch(r"\d\d", numbers[0]) else []
    if len(folders) != 1 or flags - {"--no-diff", "--html"}:
        known = ", ".join(sorted(path.name[:2] for path in (ROOT / "chapters").glob("[0-9][0-9]_*")))
        print(f"slides.py: usage: scripts/slides.py NN [--no-diff] [--html] > FILE; NN is one of {known}", file=sys.stderr)
        return 2
    if "--html" in flags and not shutil.which("pandoc"):
        print("slides.py: --html wants pandoc, which Debian and Ubuntu have as a package; without it FILE is Markdown", file=sys.stderr)
        return 2
    text = deck(folders[0], "--no-diff" not in flags)
    print(as_page(text) if "--html" in flags else text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
