#!/usr/bin/env python3
"""Scores of a model while it learns: trains it further and scores it, in turns.

    chapters/35_evaluate/proof/curve.py runs/tasks [--build build/cpu] [--steps 100,200,400,800]

Takes the files of proof/tasks.py, trains on train.txt, and writes the table to runs/tasks/curve.tsv.
"""

import argparse
import json
import subprocess
from pathlib import Path

MODEL = "--model llama-tiny --seq-len 128 --batch 16 --lr 3e-3"
FILES = ["verse", "copy", "sort", "arithmetic", "brackets", "text", "sums"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--steps", default="50,100,200,400,800,1600")
    args = parser.parse_args()
    model, report = args.tasks / "model", args.tasks / "report.json"
    rows = [["steps", "task", "score", "value", "error"]]
    for steps in args.steps.split(","):
        command = [args.build / "bin/ch06_checkpointing", "--data", args.tasks / "train.txt", *MODEL.split(), "--steps", steps,
                   "--save", model, "--quiet"]
        command += ["--load", model] if model.exists() else []
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        command = [args.build / "bin/ch35_evaluate", "--load", model, "--seq-len", "256", "--report", report, "--tasks"]
        subprocess.run([*map(str, command), *(str(args.tasks / f"{name}.jsonl") for name in FILES)], check=True,
                       stdout=subprocess.DEVNULL)
        for name, of in zip(FILES, json.loads(report.read_text())["files"]):
            for score, one in of["scores"].items():
                rows.append([steps, name, score, f"{one['value']:.5g}", f"{one['error']:.2g}"])
        (args.tasks / "curve.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
