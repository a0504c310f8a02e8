#!/usr/bin/env python3
"""All parts of scripts/torture.sh, which says what they are; the table that they make."""

import argparse
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

from calls import calls, errors
from kills import kills
from power import power
from ranks import ranks
from trial import Result, Skipped, Trial
from writers import writers

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "results" / "torture.md"

# Part, trials of a whole run and of a short one, what the page says of it. The long parts come last.
PARTS = [(kills, 450, 15, "`kill -9` at a random moment"),
         (writers, 100, 4, "two programs save into one directory, with a slow disk; one is killed"),
         (power, 300, 9, "the file system is cut off without its log, then mounted again"),
         (ranks, 10**6, 8, "ranks that were started differently, that stall or die"),
         (calls, 10**6, 48, "`kill -9` at a system call of any thread, each in turn"),
         (errors, 10**6, 72, "a system call of any thread that fails (EIO, ENOSPC, EACCES), each in turn")]


CHAPTERS = {"02": [], "10": ["--ranks", "2"], "28": ["--ranks", "2"]}  # that save, with their flags


def fail(why):
    print(f"torture.sh: {why}", file=sys.stderr)
    sys.exit(2)


def arguments():
    parser = argparse.ArgumentParser(prog="torture.sh", description=__doc__)
    parser.error = lambda message: fail(f"{message}; --help lists the flags")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "cpu")
    parser.add_argument("--part", choices=[part.__name__ for part, *_ in PARTS])
    parser.add_argument("--short", action="store_true", help="a few trials of each part")
    parser.add_argument("--seed", type=int, default=1, help="of random moments")
    return parser.parse_args()


def run(part, count, trials, seed):
    """The part's Result. If the part cannot run here, the Result says why."""
    begin = time.monotonic()
    try:
        result = part(trials, count, random.Random(f"{part.__name__} {seed}"))
    except Skipped as why:
        result = Result(part.__name__, skipped=str(why))
    except KeyboardInterrupt:
        result = Result.latest
        result.interrupted = True
    state = f"skipped: {result.skipped}" if result.skipped else f"{len(result.wrong)} wrong"
    print(f"torture: {result.name}: {result.trials} trials, {state}, "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    return result


def page(results, seed):
    """docs/results/torture.md"""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True).stdout.strip()
    rows = []
    for i, (*_, told) in enumerate(PARTS):
        result = results[i] if i < len(results) else Result("", skipped="not run")
        trials = f"the first {result.trials}" if result.interrupted else result.trials
        rows.append(f"| {told} | {trials} | {result.skipped or len(result.wrong)} |")
    return "\n".join([
        "# What a checkpoint survives",
        "",
        "After each trial the directory of `--save` must hold one whole checkpoint. The run that "
        "goes on from it must have the trace of a run that was never interrupted, and the next "
        "save must leave no stray file.",
        "",
        f"`scripts/torture.sh --seed {seed}`, commit {commit}, {platform.system()} "
        f"{platform.release()}:",
        "",
        "| trial | how many | wrong |",
        "|---|---|---|",
        *rows,
        *["", *(f"- {result.name}: {wrong}" for result in results for wrong in result.wrong)],
        ""])


def main():
    args = arguments()
    missing = [chapter for chapter in CHAPTERS if not any((args.build / "bin").glob(f"ch{chapter}_*"))]
    if missing:
        fail(f"--build {args.build}: no program of chapters {', '.join(missing)} in its folder bin")
    trials = [Trial(args.build, ROOT / "runs" / "torture", chapter, *flags, saving=("--async",) if chapter == "28" else ())
              for chapter, flags in CHAPTERS.items()]
    results = []
    for part, whole, short, _ in PARTS:
        if args.part in (None, part.__name__) and not (results and results[-1].interrupted):
            results.append(run(part, short if args.short else whole, trials, args.seed))
    wrong = sum(len(result.wrong) for result in results)
    if not args.short and not args.part:
        PAGE.write_text(page(results, args.seed))
    ran = sum(not result.skipped for result in results)
    print(f"torture: {sum(r.trials for r in results)} trials, {wrong} wrong, "
          f"{len(results) - ran} parts skipped")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
