#!/usr/bin/env python3
"""Ladder's chapter 04 and its PyTorch peer in turn: median step times and their ratio.

    scripts/text.sh runs/bible.txt
    python3 bench/peers/compare.py --data runs/bible.txt

Both train `tiny` with the settings of tiny_torch.py. They take turns, so that a machine that is
busy for a while is busy for both.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ["--model=tiny", "--lr=1e-3", "--beta2=0.99", "--weight-decay=0.1", "--clip=1",
            "--warmup=100", "--schedule=cosine"]


def run_ladder(args, flags):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([args.program, *flags, *SETTINGS, "--quiet", f"--report={report}"],
                       check=True)
        return json.loads(report.read_text())["step_ms_median"]


def run_torch(flags):
    peer = Path(__file__).with_name("tiny_torch.py")
    out = subprocess.run([sys.executable, peer, *flags, "--json"], check=True, capture_output=True)
    return json.loads(out.stdout)["step_ms_median"]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="text file to train on")
    parser.add_argument("--program", default=ROOT / "build/cpu/bin/ch04_clipping")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse_args()
    flags = [f"--{name}={getattr(args, name)}" for name in ["data", "steps", "batch", "threads"]]
    ladder, torch = [], []
    print("median ms a step   ladder   PyTorch")
    for number in range(1, args.rounds + 1):
        ladder.append(run_ladder(args, flags))
        torch.append(run_torch(flags))
        print(f"round {number:<11}{ladder[-1]:8.1f}  {torch[-1]:8.1f}", flush=True)
    mine, other = statistics.median(ladder), statistics.median(torch)
    print(f"median           {mine:8.1f}  {other:8.1f}   ratio {other / mine:.2f}")


if __name__ == "__main__":
    main()
