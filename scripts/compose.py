#!/usr/bin/env python3
"""Merges branches of the tree of chapters into one program, as docs/composing.md explains.

    scripts/compose.py 28 30 [--build DIR]   writes DIR/composed/28_30.cpp, says how many conflicts are left to
                                             you, and tries a pair that leaves none; a third chapter joins the result
    scripts/compose.py --all [--build DIR]   every pair; writes docs/results/composing.md

The base is the nearest chapter that both descend from. Lines are merged first, by `git merge-file`; then,
inside each conflict, words. The name of the program is the first chapter's. A conflict that is left stands in
the program between marks. To try a pair is to run it with one idea alone: the trace must be that of the idea's
chapter. If one idea is a layout, which changes no bit, the pair also runs with both.
"""

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import chapter_tree
from marked import ROOT
from measure import commit

# Flags that turn a chapter's idea on; whether it is a layout, which changes no bit.
IDEAS = {14: ("--agc 0.01", False), 15: ("--ranks 2 --noise-scale", True), 16: ("--precision fp8", False),
         17: ("--head-chunk 1", True), 18: ("--ranks 2 --offload optimizer,weights", True),
         19: ("--norm rms", False), 20: ("--model llama-nano --seq-len 128 --micro-batch 1 --ranks 2 --cp 2", True),
         21: ("--model llama-nano --experts 4 --experts-per-token 2", False),
         22: ("--model llama-nano --experts 4 --experts-per-token 2 --ranks 2 --ep 2", False),
         26: ("--documents --end-of-text 10", False), 27: ("--documents --end-of-text 10 --ranks 2", False),
         28: ("--ranks 2 --save FOLDER --save-every 2 --async", True), 29: ("--watch-every 2 --events FOLDER", True),
         30: ("--ranks 4 --replicas 2", True), 32: ("--optimizer muon", False), 33: ("--ranks 4 --tp 2", True), 34: ("--mup 32,2", False)}
MARKS = ("<<<<<<< ", "||||||| ", "=======", ">>>>>>> ")
WORD = re.compile(r"\w+|\n *| +|[^\w\s]")


class Fault(Exception):
    """A program did not run."""


@dataclass
class Merged:
    """A program made of chapters; at first of one."""

    chapters: list
    lines: list
    base: str = ""     # of the last merge
    by_lines: int = 0  # conflicts that git merge-file saw in it
    left: int = 0      # of those: what words do not settle

    @property
    def name(self):
        return "_".join(chapter[:2] for chapter in self.chapters)


def merge_file(ours, base, theirs):
    """Three lists of lines. Returns a list of lines, and of triples where both sides changed the same."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, side) for side in ("ours", "base", "theirs")]
        for path, lines in zip(paths, (ours, base, theirs)):
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        told = subprocess.run(["git", "merge-file", "-p", "--diff3", *paths], capture_output=True, text=True).stdout
    pieces, sides = [], None
    for line in told.splitlines():
        expected = MARKS[len(sides)] if sides else MARKS[0]
        if not line.startswith(expected):
            (sides[-1] if sides else pieces).append(line)
        elif expected == MARKS[3]:
            pieces.append(tuple(sides))
            sides = None
        else:
            sides = [*(sides or []), []]
    return pieces


def merge_words(ours, base, theirs):
    """The same of words: the text, or None where both changed the same word. Both may add at one place."""
    def words(lines):
        return [word.replace("\n", "\\n") for word in WORD.findall("\n".join(lines))]

    text = []
    for piece in merge_file(*map(words, (ours, base, theirs))):
        if isinstance(piece, tuple) and piece[1]:
            return None
        text += piece[0] + piece[2] if isinstance(piece, tuple) else [piece]
    return "".join(text).replace("\\n", "\n")


def code(lines):
    return [line for line in lines if line.strip() and not line.strip().startswith("//")]


def settled(ours, base, theirs):
    """The text of a conflict that needs nobody: one side changed a comment only, or both added words."""
    if code(theirs) == code(base):
        return "\n".join(ours)
    if code(ours) == code(base):
        return "\n".join(theirs)
    return "\n".join(ours + theirs) if not base else merge_words(ours, base, theirs)


def nameless(name):
    """Lines of a chapter's main.cpp; its name and what --help says of it are everybody's alike."""
    text = (ROOT / "chapters" / name / "main.cpp").read_text(encoding="utf-8")
    return re.sub(r'CommandLine\("[^"]*"\)', 'CommandLine("NAME")', text).replace(f'"{name}"', '"NAME"').splitlines()


def merge(ours, base, chapter):
    """Another chapter joins a program."""
    merged = Merged([*ours.chapters, chapter], [], base)
    for piece in merge_file(ours.lines, nameless(base), nameless(chapter)):
        if isinstance(piece, str):
            merged.lines.append(piece)
            continue
        merged.by_lines += 1
        text = settled(*piece)
        merged.left += text is None
        own, old, theirs = piece
        merged.lines += text.split("\n") if text is not None else [
            "<<<<<<< " + ours.name, *own, "||||||| " + base, *old, "=======", *theirs, ">>>>>>> " + chapter]
    return merged


def nearest(ours, chapter, table):
    """The chapters that both descend from, without those that others of them descend from."""
    above = {name: chapter_tree.ancestors(name, table) for name in table}
    common = above[chapter] & set().union(*(above[name] for name in ours))
    return [one for one in sorted(common) if not any(one in above[other] - {other} for other in common)]


def best_merge(names, table):
    """The program of these chapters, each joined over the base that leaves least. None if one descends from another."""
    merged = Merged([names[0]], nameless(names[0]))
    for name in names[1:]:
        bases = nearest(merged.chapters, name, table)
        if {name, *merged.chapters} & set(bases):
            return None
        merged = min((merge(merged, base, name) for base in bases), key=lambda one: (one.left, one.by_lines))
        if merged.left:
            break
    return merged


# ---- a program that leaves nothing is built and tried -------------------------------------------


def write(merged, build):
    """What is the same stays as it is, and is not built twice."""
    path = build / "composed" / f"{merged.name}.cpp"
    path.parent.mkdir(exist_ok=True)
    text = "\n".join(merged.lines).replace('"NAME"', f'"{merged.chapters[0]}"') + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


def built(merged, build):
    """None, or the first error of the compiler."""
    targets = [f"composed_{merged.name}", *(f"ch{name}" for name in merged.chapters)]
    done = subprocess.run(["cmake", "--build", build, "--target", *targets], capture_output=True, text=True)
    errors = re.findall(r"error: (.*)", done.stdout + done.stderr)
    return None if done.returncode == 0 else (errors or ["not linked"])[0]


def trace(program, flags):
    """The trace of four steps. @throws Fault with what the program said"""
    with tempfile.TemporaryDirectory() as folder:
        flags = "--model nano " * ("--model" not in flags) + flags.replace("FOLDER", f"{folder}/files")
        done = subprocess.run([program, "--data", ROOT / "docs/same_bits.md", *flags.split(), "--steps", "4", "--batch", "8",
                               "--threads", "1", "--quiet", "--trace", f"{folder}/trace"], capture_output=True, text=True)
        if done.returncode:
            raise Fault(f"{program.name} {flags}: {done.stderr.strip()}")
        return Path(folder, "trace").read_text()


def fault(merged, build):
    """What the program does not keep, in words; None if it keeps all."""
    own, pair = build / f"bin/composed_{merged.name}", merged.chapters
    flags = {name: IDEAS[int(name[:2])][0] for name in pair}
    try:
        alone = {name: trace(build / f"bin/ch{name}", flags[name]) for name in pair}
        for name in pair:
            if trace(own, flags[name]) != alone[name]:
                return f"other bits with {name[:2]} alone"
        for layout, other in (pair, pair[::-1]):
            if IDEAS[int(layout[:2])][1] and "--model" not in flags[layout]:
                if trace(own, merge_flags(flags[other], flags[layout])) != alone[other]:
                    return f"other bits than {other[:2]} alone with both"
    except Fault as why:
        return str(why)
    return None


def merge_flags(first, second):
    """Both; of --ranks the larger."""
    ranks = max(re.findall(r"--ranks (\d)", f"{first} {second}"), default="1")
    return re.sub(r"--ranks \d", "", f"{first} {second}") + (f" --ranks {ranks}" if ranks > "1" else "")


def tried(merged, build):
    """What became of a merge, in words."""
    if merged.left:
        return f"{merged.left} left"
    error = built(merged, build)
    if error:
        return f"not built: {error}"
    return "built" if len(merged.chapters) > 2 else fault(merged, build) or "same bits"


def page(rows, lineages):
    lines = ["# Which branches merge", "",
             f"`scripts/compose.py --all`, commit {commit()}. [docs/composing.md](../composing.md) says how a pair is merged. "
             "*Lines*: conflicts that `git merge-file` sees. *Left*: those that words do not settle. "
             f"*Tried*: what the program did if nothing is left. "
             f"{len(rows)} pairs; {sum(not m.left for m, _ in rows)} of them leave nothing.", "",
             f"One descends from the other, and there is nothing to merge: {', '.join(map(' and '.join, lineages))}.", "",
             "| pair | base | lines | left | tried |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {m.name.replace('_', ' and ')} | {m.base[:2]} | {m.by_lines} | {m.left} | "
                                f"{'' if m.left else told} |" for m, told in rows), ""])


def fail(why):
    print(f"compose.py: {why}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapters", nargs="*", metavar="NN")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu")
    words = parser.parse_args()
    table = chapter_tree.chapters()
    branches = {name[:2]: name for name in table if int(name[:2]) in IDEAS}
    if not (words.build / "CMakeCache.txt").is_file():
        fail(f"--build {words.build}: legal is a folder that cmake has configured")
    if words.all == bool(words.chapters) or words.chapters and len(set(words.chapters) & set(branches)) != max(2, len(words.chapters)):
        fail(f"{' '.join(words.chapters) or 'no chapter'}: legal is --all, or two and more of {' '.join(branches)}")
    pairs = list(itertools.combinations(branches, 2)) if words.all else [tuple(words.chapters)]
    merges = {pair: best_merge([branches[number] for number in pair], table) for pair in pairs}
    lineages = [pair for pair in pairs if merges[pair] is None]
    if lineages and not words.all:
        fail(f"{' '.join(pairs[0])}: one descends from another, which leaves nothing to merge")
    paths = {pair: write(merged, words.build) for pair, merged in merges.items() if merged}
    if not all(merges[pair].left for pair in paths):
        done = subprocess.run(["cmake", words.build], capture_output=True, text=True)  # it looks for sources
        if done.returncode:
            fail(f"cmake {words.build} failed: {' '.join(done.stderr.split())}")
    rows = []
    for pair, path in paths.items():
        merged = merges[pair]
        rows.append((merged, tried(merged, words.build)))
        print(f"{path}: base {merged.base}, {merged.by_lines} conflicts of lines, {merged.left} left; {rows[-1][1]}", flush=True)
    if words.all:
        (ROOT / "docs/results/composing.md").write_text(page(rows, lineages), encoding="utf-8")


if __name__ == "__main__":
    main()
