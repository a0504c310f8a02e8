#!/usr/bin/env python3
"""Runs every chapter on one configuration and writes a page about it: scripts/compare.sh calls it.

Exit status 1 if a run fails, or has other bits than chapter 06 where it must have the same; 2 for
flags that no run can have.
"""

import argparse
import datetime
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import chapter_tree  # noqa: E402
from measure import commit, machine  # noqa: E402
from rows import REFERENCE, rows  # noqa: E402
from runs import (ROOT, TIMED_STEPS, Refused, RunError, judge, program, run_row, seen_from_root,  # noqa: E402
                  time_in_turns)

# Of the text: so short that the validation at the end of each run takes less than its steps.
EXCERPT = 1 << 16
# The model where --model names none: eight ranks can share each axis of it, and its weights, gradients and
# states take more than its activations.
UNNAMED = {"model": "small", "layers": 16, "heads": 8, "channels": 128, "seq_len": 128}


def fail(why):
    print(f"compare.sh: {why}", file=sys.stderr)
    sys.exit(2)


def positive(text):
    if not re.fullmatch("[1-9][0-9]{0,17}", text):
        raise argparse.ArgumentTypeError(f"'{text}'; legal are whole numbers from 1 on")
    return int(text)


def text_file(name):
    """The name of a text as the programs see it, which run in the root."""
    path = Path(name).resolve()
    if not path.is_file() or not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"{name}: no such file, or it cannot be read")
    return seen_from_root(path)


def tokenizer(name):
    """The name of a folder or file as the programs see it."""
    path = Path(name).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{name}: no such file or folder")
    return seen_from_root(path)


def folder(name):
    path = Path(name).resolve()
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{name}: is there and is no folder")
    return path


def some_chapters(text):
    numbers, known = text.split(","), sorted(name[:2] for name, row in chapter_tree.chapters().items() if row.trains)
    if not set(numbers) <= set(known):
        raise argparse.ArgumentTypeError(f"{text}: legal are some of {','.join(known)}")
    return {REFERENCE, *numbers}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="compare.sh", description="All techniques side by side, on one page.")
    parser.error = lambda message: fail(f"{message}; --help lists the flags")
    add = parser.add_argument
    add("--model", help="one that chapter 01 knows; without it {model} with {layers} layers, {heads} heads, {channels} "
                        "channels and {seq_len} tokens".format(**UNNAMED))
    for name, what in [("layers", "blocks; interleaved pipelines want a multiple of 2 x ranks"),
                       ("heads", "attention heads"), ("channels", "width of the residual stream"),
                       ("seq-len", "tokens of a sequence")]:
        add(f"--{name}", type=positive, help=f"{what}, if others than the model's")
    add("--ranks", type=int, choices=[2, 4, 8], default=8, help="of every row that has more than one; 13 "
                                                                "wants 8")
    add("--batch", type=positive, default=16, help="sequences of a step, over all ranks")
    add("--micro-batch", type=positive, default=1, help="sequences at a time, of a rank")
    add("--steps", type=positive, default=25, help="steps of each run")
    add("--rounds", type=positive, default=3, help="how often the runs take turns, to be timed")
    add("--backend", choices=["ref", "cpu", "cuda", "cuda-on-cpu"], default="cpu", help="computes")
    add("--data", type=text_file, help="text to train on; without it 64 KiB of the King James Bible")
    add("--tokenizer", type=tokenizer, help="folder of one, with which the text is encoded; without it a token is a byte")
    add("--no-build", action="store_true", help="run the programs that are there; install and build nothing")
    add("--only", type=some_chapters, help="these chapters and 06, such as 07,10,13")
    add("--out", type=folder, default=ROOT / "build/report", help="folder of the page")
    args = parser.parse_args(arguments)
    args.chosen = [flag for flag in (*UNNAMED, "batch", "micro_batch", "ranks")
                   if getattr(args, flag) != parser.get_default(flag)]
    if args.model is None:
        for name, value in UNNAMED.items():
            setattr(args, name, getattr(args, name) or value)
    args.preset = "cuda" if args.backend == "cuda" else "cpu"
    return args


def build(args):
    """Installs what is missing, and builds all chapters."""
    run = lambda *words, **how: subprocess.run(words, cwd=ROOT, check=True, **how)
    run("bash", "scripts/setup.sh")
    run("cmake", "--preset", args.preset, stdout=subprocess.DEVNULL)
    run("cmake", "--build", "--preset", args.preset, "--parallel", str(os.cpu_count()), "--target",
        *(f"ch{name}" for name in chapter_tree.chapters(ROOT) if not args.only or name[:2] in args.only))


def excerpt(args):
    """The first pages of the Bible, as a file of the report."""
    whole, part = args.out / "bible.txt", args.out / "text.txt"
    subprocess.run(["bash", "scripts/text.sh", whole], cwd=ROOT, check=True)
    part.write_bytes(whole.read_bytes()[:EXCERPT])
    return seen_from_root(part)


def run_one(row, args):
    """A run, or as text why the row cannot run. If no flag chooses a layout, every row must run. @throws RunError"""
    if 1 < row.ranks != args.ranks:
        return f"its {row.ranks} ranks are not the {args.ranks} of the others"
    if not (ROOT / program(row.chapter, args)).is_file():
        return f"{program(row.chapter, args)} is not built"
    try:
        return run_row(row, args)
    except Refused as why:
        if row.key == REFERENCE and args.chosen:
            fail(why)
        if not args.chosen:
            raise
        return str(why)


def run_all(wanted, args):
    """Returns the runs, the rows that cannot run with the reason, and what went wrong."""
    runs, left_out, faults = [], [], []
    # The reference first: flags that it does not take are legal for nobody.
    for i, row in enumerate(sorted(wanted, key=lambda row: row.key != REFERENCE), 1):
        head = f"[{i:2}/{len(wanted)}] {row.chapter[:2]} {row.title:24}"
        try:
            run = run_one(row, args)
        except RunError as error:
            faults.append(f"{row.chapter} {row.title}: {error}")
            print(f"{head} FAILED: {error}", flush=True)
            continue
        if isinstance(run, str):
            left_out.append((row, run))
            print(f"{head} left out: {run}", flush=True)
            continue
        runs.append(run)
        print(f"{head} {run.report['step_ms_median']:8.1f} ms a step {run.report['tokens_per_second']:10,.0f} "
              f"tokens/s {run.peak / 2**20:8.2f} MiB", flush=True)
    return sorted(runs, key=lambda run: wanted.index(run.row)), left_out, faults


def about(args, words, model):
    return {"Command": shlex.join(["scripts/compare.sh", *words]),
            "Model": f"{args.model}, {model['layers']} layers, {model['heads']} heads, {model['channels']} "
                     f"channels, {model['seq_len']} tokens: {model['parameters']:,} parameters",
            "Text": f"{args.data}, a vocabulary of {model['vocab']:,}" + (f": {args.tokenizer}" if args.tokenizer else ""),
            "Runs": f"backend {args.backend}; batch {args.batch} sequences, {args.micro_batch} at a time; "
                    f"{args.steps} steps",
            "Times": f"{args.rounds} round{'s' * (args.rounds > 1)}, in each of which every program takes "
                     f"{min(args.steps, TIMED_STEPS)} steps, one program after the other"
                     + ("; one round says little of speeds" if args.rounds == 1 else ""),
            "Machine": machine(), "Date": datetime.datetime.now().strftime("%d %B %Y, %H:%M"), "Commit": commit()}


def main(words):
    args = parse_arguments(words)
    try:
        if not args.no_build:
            build(args)
    except subprocess.CalledProcessError as error:  # which has said why
        return error.returncode
    from page import html  # its charts need what build() installs
    args.out.mkdir(parents=True, exist_ok=True)
    args.data = args.data or excerpt(args)
    wanted = [row for row in rows(args.ranks, args.backend, args.model) if not args.only or row.chapter[:2] in args.only]
    runs, left_out, faults = run_all(wanted, args)
    reference = next((run for run in runs if run.row.key == REFERENCE), None)
    if not reference:
        print("compare.sh: without chapter 06 there is nothing to compare with", file=sys.stderr)
        return 1
    try:
        time_in_turns(runs, args)
        judge(runs)
    except (RunError, OSError) as error:
        faults.append(str(error))
        if not reference.times:
            print(f"compare.sh: {error}", file=sys.stderr)
            return 1
    page = args.out / "index.html"
    page.write_text(html(runs, left_out, faults, about(args, words, reference.report["model"])), encoding="utf-8")

    must = [run for run in runs if not run.row.differs]
    wrong = [run for run in must if run.verdict == "wrong"]
    for run in wrong:
        print(f"{run.row.chapter} {run.row.title}: other bits than chapter 06: {run.difference}")
    print(f"{len(must) - len(wrong)} of {len(must)} runs that must have the bits of chapter 06 have "
          f"them; {len(faults)} failed.", *faults, sep="\n")
    print(f"The page: {page.resolve()}")
    return 1 if wrong or faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
