"""Parts of pages that scripts write, and no hand: what stands between the lines <!-- NAME:begin -->
and <!-- NAME:end -->."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Stale(Exception):
    """A part cannot be written: a mark is missing, or the file or line that it names."""


def replaced(text, name, body):
    """The text with `body` between the marks of that name. @throws Stale"""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    if [text.count(mark) for mark in (begin, end)] != [1, 1]:
        raise Stale(f"wants one line {begin.strip()} and one {end.strip()}")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}{body}\n{end}{rest.partition(end)[2]}"


def settle(root, name, make, repair, command):
    """The faults of a file: none if its text is make(text). With `repair` that text is written."""
    path = root / name
    text = path.read_text(encoding="utf-8")
    try:
        new = make(text)
    except Stale as why:
        return [f"{name}: {why}"]
    if new == text:
        return []
    if not repair:
        return [f"{name}: stale; {command} rewrites it"]
    path.write_text(new, encoding="utf-8")
    print(f"{name}: rewritten")
    return []


def tell(faults):
    """Prints them; the exit status for them."""
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


def main(words, faults_of):
    """The main program of scripts that take --embed or --check: faults_of(root, repair) does the whole work."""
    if words not in (["--embed"], ["--check"]):
        name = Path(sys.argv[0]).name
        print(f"{name}: usage: scripts/{name} --embed|--check", file=sys.stderr)
        return 2
    return tell(faults_of(ROOT, words == ["--embed"]))
