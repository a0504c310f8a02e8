#!/usr/bin/env python3
"""The sidebar of the documentation site: a page for each part of the book, with its pages below it.

    docs/site.py DIR    writes them into DIR; docs/CMakeLists.txt gives them to Doxygen
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import chapter_tree  # noqa: E402
from filter import label  # noqa: E402

REFERENCE = ["running", "same_bits", "glossary", "frameworks", "planner", "recipe", "cuda", "context_parallel",
             "expert_parallel", "mesh", "composing", "cluster", "machines", "answers"]


def parts():
    """(file, title, what it says, the pages of it)"""
    rows = sorted(chapter_tree.chapters().items())
    readmes = {name: f"chapters/{name}/README.md" for name, _ in rows}
    yield "start", "How to read", "The way through the series.", ["docs/tour.md", "docs/one_step.md"]
    yield ("trunk", "The trunk", "From SGD to 3D parallelism, one idea a chapter.",
           [readmes[name] for name, row in rows if row.in_trunk])
    yield ("branches", "Branches", "Each begins at the first chapter that has what it needs.",
           [readmes[name] for name, row in rows if not row.in_trunk and row.has_diff])
    yield ("others", "Programs that train no model", "Planning, tokens, documents.",
           [readmes[name] for name, row in rows if not row.has_diff] + ["chapters/25_corpus/examples.md"])
    yield "labs_of", "Labs", "What you write yourself, and how a course uses it.", ["labs/README.md", "docs/course.md", "docs/syllabus.md"]
    yield ("reference", "Reference", "How to run, what the words mean, how the bits come about.",
           [f"docs/{name}.md" for name in REFERENCE] + ["CONTRIBUTING.md"])
    yield ("results", "Results", "What was measured, where and with which command.",
           [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs/results").glob("*.md"))])


def main(folder):
    for place, (name, title, text, pages) in enumerate(parts()):  # Doxygen takes files by name
        items = "".join(f"- \\subpage {label(page, 'page')}\n" for page in pages)
        Path(folder, f"{place}_{name}.md").write_text(f"# {title} {{#part_{name}}}\n\n{text}\n\n{items}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
