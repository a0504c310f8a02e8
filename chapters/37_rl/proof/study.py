#!/usr/bin/env python3
"""What rewards teach, which docs/results/37_rl.md shows: three tasks, with std and without, two seeds each.

    study.py FOLDER TEXT [--build build/cpu] [--threads 2]
        trains a base for each task (chapter 36) and four policies; runs that FOLDER has are kept
    study.py FOLDER --tables [--picture X.svg]
        the tables of the page, and its curves
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EACH, LAST = 25, 10
MODEL = "--model llama-tiny --layers 2 --channels 64 --heads 4"
# The window, how many tokens an answer may have, steps of the base and of a policy.
KINDS = {"arithmetic": (32, 8, 300, 100), "sorting": (32, 8, 150, 100), "verse": (64, 32, 300, 25)}
RUNS = [(advantage, seed) for advantage in ("std", "mean") for seed in (1, 2)]
CURVES = {"reward": "reward", "entropy": "entropy", "length": "length", "held out": "held-out pass rate"}


def call(*words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)


def train(args, kind):
    here = args.folder / kind
    window, most, base_steps, steps = KINDS[kind]
    own = ["--threads", args.threads, "--quiet"]
    if not (here / "base/config.json").exists():
        call(sys.executable, Path(__file__).with_name("tasks.py"), kind, here, *([args.text] if kind == "verse" else []))
        call(args.build / "bin/ch36_finetune", *MODEL.split(), "--seq-len", window, "--data", here / "chats.jsonl",
             "--batch", 32, "--steps", base_steps, "--lr", 0.003, "--save", here / "base", "--overwrite", *own)
    runs = {"base0": ["--steps", 0]}
    runs |= {f"{advantage}{seed}": ["--advantage", advantage, "--seed", seed, "--steps", steps] for advantage, seed in RUNS}
    for name, words in runs.items():
        report = here / f"{name}.json"
        if not report.exists():
            call(args.build / "bin/ch37_rl", "--base", here / "base", "--data", here / "tasks.jsonl", "--batch", 8, "--group", 8,
                 "--max-tokens", most, "--lr", 3e-4, "--eval-every", EACH, "--report", report, *words, *own)


def runs_of(args, kind):
    """Those that FOLDER has."""
    return [run for run in RUNS if (args.folder / kind / "{}{}.json".format(*run)).exists()]


def curves(args, kind, run):
    """Each with its steps."""
    report = json.loads((args.folder / kind / "{}{}.json".format(*run)).read_text())
    steps = report["extra"]["rl"]
    told = {name: (range(1, len(steps) + 1), [step[name] for step in steps]) for name in ("reward", "entropy", "length")}
    first = json.loads((args.folder / kind / "base0.json").read_text())
    passed = [(0, 1 - first["val_loss"]), *((one["step"], 1 - one["val_loss"]) for one in report["evals"])]
    return {**told, "held out": tuple(zip(*passed, (len(steps), 1 - report["val_loss"])))}


def mean(values):
    return sum(values) / len(values)


def tables(args):
    print("| task | advantage, seed | reward, first and last ten steps | entropy | length | held-out tasks passed, of 200 |")
    print("|---|---|--:|--:|--:|--:|")
    for kind in KINDS:
        for run in runs_of(args, kind):
            told = curves(args, kind, run)
            cells = [f"{mean(told[name][1][:LAST]):.3f} to {mean(told[name][1][-LAST:]):.3f}" for name in ("reward", "entropy", "length")]
            print("|", kind, "|", *run, "|", " | ".join(cells), "|", ", ".join(f"{200 * one:.0f}" for one in told["held out"][1]), "|")
    if args.picture:
        draw(args)


def draw(args):
    sys.path.append(str(ROOT / "scripts"))
    from plot import pyplot, save

    figure, panels = pyplot().subplots(len(KINDS), len(CURVES), figsize=(10, 6), sharex=True, layout="constrained")
    for row, kind in zip(panels, KINDS):
        row[0].set_ylabel(kind)
        for panel, (name, title) in zip(row, CURVES.items()):
            for run in runs_of(args, kind):
                steps, values = curves(args, kind, run)[name]
                if name != "held out":  # the mean of ten steps
                    steps, values = steps[LAST - 1:], [mean(values[at - LAST:at]) for at in steps[LAST - 1:]]
                panel.plot(steps, values, "C0" if run[0] == "std" else "C1", linestyle="-:"[run[1] - 1], label="{}, seed {}".format(*run))
            panel.set_ylim(bottom=0)
            if kind == "arithmetic":
                panel.set_title(title, fontsize=9)
    panels[0][0].legend(fontsize=7)
    save(figure, args.picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    if args.tables:
        return tables(args)
    if args.text is None or not args.text.is_file():
        parser.error("legal are a folder and a text, or a folder and --tables")
    for kind in KINDS:
        train(args, kind)


if __name__ == "__main__":
    main()
