#!/usr/bin/env python3
"""Diffs of chapters and quotes of code, in pages: scripts/chapter_diff.sh says how to call it."""

import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import chapter_tree
from marked import ROOT, Stale, replaced, settle, tell

MARK = re.compile(r"^<!-- quote: (\S+) \| (.+?)(?: \.\.\. (.+))? -->$")
END = "<!-- quote:end -->"
PART = re.compile(r"^<!-- diff of: (.*?) ?\| (.+?) -->$", re.MULTILINE)
UNIT = re.compile(r"(?:struct|class|enum class) (\w+)|[\w:<>&*, ]*?\b(\w+)\(")
AROUND = 3  # lines shown around those that no parent has


def main_of(name):
    return f"chapters/{name}/main.cpp"


def diffs(root, row):
    """The diffs to all parents. Their labels carry no date, so that they stay the same."""
    text, to = "", main_of(row.name)
    for parent in map(main_of, row.parents):
        words = ["diff", "--unified", "--label", parent, "--label", to, parent, to]
        text += subprocess.run(words, cwd=root, capture_output=True, text=True).stdout
    return text.rstrip("\n")


def new_lines(root, row):
    """The lines that no parent has, with a + before them, each with some around it. Indentation makes
    no difference."""
    read = lambda name: (root / main_of(name)).read_text(encoding="utf-8").splitlines()
    known = {line.lstrip(" ") for parent in row.parents for line in read(parent)}
    lines = read(row.name)
    new = [i for i, line in enumerate(lines) if line.lstrip(" ") not in known]
    out, last, where = [], -1, ""
    for i, line in enumerate(lines):
        if re.match(r"[a-zA-Z].*[^;]$", line):
            where = f" {line}"
        if any(abs(i - j) <= AROUND for j in new):
            if i == 0 or i != last + 1:
                out.append(f"@@ line {i + 1} @@{where}")
            out.append(("+" if i in new else " ") + line)
            last = i
    return "\n".join(out)


def units(text):
    """(name, text) of each function and type of a source, with what stands before it; at last the rest."""
    found, begin, lines, name = [], 0, text.splitlines(keepends=True), None
    for i, line in enumerate(lines):
        opened = UNIT.match(line) if name is None and line[0] not in "/#}" and not line.startswith("namespace") else None
        name = opened[1] or opened[2] if opened else name
        if name and line.rstrip() in ("}", "};"):
            found.append((name, "".join(lines[begin:i + 1])))
            begin, name = i + 1, None
    return [*found, ("", "".join(lines[begin:]))]


def in_parts(root, row, parts):
    """The diff in parts, one after the other: [(title, names of what it changes)], where `...` stands for all
    that no other part names. A part with a title is folded away."""
    old, new = (dict(units((root / main_of(name)).read_text(encoding="utf-8"))) for name in (*row.parents, row.name))
    order = list(new)
    for name in old:
        if name not in new:
            order.insert(order.index(list(old)[list(old).index(name) - 1]) + 1, name)
    named, shown = {name for _, names in parts for name in names}, []
    for title, names in parts:
        before = "".join(old.get(name, "") for name in order)
        for name in order:
            if name in names or ("..." in names and name not in named):
                old[name] = new.get(name, "")
        with tempfile.TemporaryDirectory() as folder:
            for at, text in (("old", before), ("new", "".join(old.get(name, "") for name in order))):
                Path(folder, at).write_text(text, encoding="utf-8")
            words = ["diff", "--unified", "--label", main_of(row.parents[0]), "--label", main_of(row.name), "old", "new"]
            text = subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout.rstrip("\n")
        block = f"```diff\n{text}\n```"
        shown.append(f"<details><summary>{title}</summary>\n\n{block}\n\n</details>" if title else block)
    if old != {name: new.get(name, "") for name in order}:
        raise Stale("its parts of the diff leave something out: one wants the name ...")
    return "\n\n".join(shown)


def with_diff(root, row):
    def make(text):
        parts = [(found[1], found[2].split()) for found in PART.finditer(text)]
        if parts:
            return replaced(text, "diff", in_parts(root, row, parts))
        shown = new_lines(root, row) if len(row.parents) > 1 else diffs(root, row)
        return replaced(text, "diff", f"```diff\n{shown}\n```")
    return make


def quoted(root, name, first, last):
    """The lines that a mark names, without their common indentation; and the number of the first."""
    path = root / name
    if not path.is_file():
        raise Stale(f"quotes {name}, which is no file")
    lines = path.read_text(encoding="utf-8").splitlines()
    begins = [i for i, line in enumerate(lines) if first in line]
    if len(begins) != 1:
        raise Stale(f"quotes {name} from '{first}', which stands there {len(begins)} times, not once")
    begin = begins[0]
    if not last:
        return [lines[begin].strip()], begin + 1
    margin = re.match(" *", lines[begin])[0]
    for end in range(begin + 1, len(lines)):
        if lines[end].startswith(margin + "}") if last == "{}" else last in lines[end]:
            return textwrap.dedent("\n".join(lines[begin:end + 1])).splitlines(), begin + 1
    raise Stale(f"quotes {name} up to '{last}', which does not follow '{first}'")


def with_quotes(root, numbered):
    """A function that renews the quotes of a page's text. With `numbered` a quote names its line, too."""
    def make(text):
        out, mark = [], None
        for line in text.splitlines():
            if line == END:
                if not mark:
                    raise Stale(f"has a line {END} without its beginning")
                mark = None
            elif line.startswith("<!-- quote: "):
                found = MARK.match(line)
                if mark or not found:
                    raise Stale(f"wants '<!-- quote: FILE | FIRST ... LAST -->' and then {END}, at: {line}")
                mark = found
                comment = "#" if Path(mark[1]).suffix in {".py", ".sh"} else "//"
                lines, number = quoted(root, *mark.groups())
                where = f"{mark[1]}:{number}" if numbered else mark[1]
                out += [line, "```cpp", f"{comment} {where}", *lines, "```"]
                continue
            if not mark:
                out.append(line)
        if mark:
            raise Stale(f"wants a line {END} after: {mark[0]}")
        return "\n".join(out) + "\n"
    return make


def children(root, number=""):
    """Chapters with a parent. A chapter that trains nothing has no diff and is left out."""
    return [row for name, row in chapter_tree.chapters(root).items()
            if row.parents and row.has_diff and (not number or name.startswith(f"{number}_"))]


def faults(root, number="", repair=False):
    found, command = [], "scripts/chapter_diff.sh --embed"
    for row in children(root, number):
        found += settle(root, f"chapters/{row.name}/README.md", with_diff(root, row), repair, command)
    pages = sorted((root / "chapters").glob(f"{number or '[0-9][0-9]'}_*/README.md"))
    for page in pages + ([] if number else sorted((root / "docs").glob("*.md"))):
        found += settle(root, str(page.relative_to(root)), with_quotes(root, page.parent.name == "docs"), repair,
                        command)
    return found


def main(words):
    mode = words.pop(0) if words[:1] in (["--embed"], ["--check"]) else ""
    number = words[0] if words else ""
    if len(words) > 1 or (number and not children(ROOT, number)):
        print("chapter_diff.sh: usage: scripts/chapter_diff.sh [--embed|--check] [NN], where NN is one of "
              f"{', '.join(row.name[:2] for row in children(ROOT))}", file=sys.stderr)
        return 2
    if mode:
        return tell(faults(ROOT, number, mode == "--embed"))
    print(*(diffs(ROOT, row) for row in children(ROOT, number)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
