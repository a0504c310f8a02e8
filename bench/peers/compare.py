#!/usr/bin/env python3
"""Ladder's chapter 04 and its PyTorch peer in turn: median step times and their ratio.

    scripts/text.sh runs/bible.txt
    build/peers/bin/python bench/peers/compare.py --data runs/bible.txt

Both train `tiny` with the settings of tiny_torch.py. They take turns, so that a machine that is
busy for a while is busy for both. bench/peers/whole_step.py compares GPT-2 124M.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

from results import add_write, section  # noqa: E402

# What PyTorch is fastest with: whole_step.py has the choices.
FASTEST = ["--compile", "--fused", "--attention=library"]
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": "-1"}

SETTINGS = ["--model=tiny", "--lr=1e-3", "--beta2=0.99", "--weight-decay=0.1", "--clip=1",
            "--warmup=100", "--schedule=cosine"]


@dataclass
class Run:
    step_ms: float  # median
    peak_mib: float  # largest resident set of the process: VmHWM


def run_process(command, env=None):
    """What the command prints, and the largest resident set of its process in MiB."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                               env={**os.environ, **(env or {})})
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} {command[1]}: exit status {process.returncode}")
    return output, usage.ru_maxrss / 1024


def run_ladder(program, flags):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        _, peak = run_process([program, *flags, "--quiet", f"--report={report}"])
        return Run(json.loads(report.read_text())["step_ms_median"], peak)


def run_torch(script, flags, threads, env=None):
    """OpenMP's threads sleep while they wait: PyTorch's products have threads of their own, and
    two teams that spin on two cores take each other's time."""
    env = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads),
           "OPENBLAS_NUM_THREADS": str(threads), **(env or {})}
    peer = Path(__file__).with_name(script)
    output, peak = run_process([sys.executable, peer, *flags], env)
    return Run(json.loads(output)["step_ms_median"], peak)


def take_turns(rounds, ladder, torch):
    """Calls both in turn, prints each round, and returns the median Run of both."""
    runs = []
    print(f"{'ms a step, MiB at the peak':28}{'ladder':>14}{'PyTorch':>16}")
    for number in range(1, rounds + 1):
        runs.append((ladder(), torch()))
        show(f"round {number}", *runs[-1])
    mine, other = (Run(statistics.median(run.step_ms for run in column),
                       statistics.median(run.peak_mib for run in column))
                   for column in zip(*runs))
    show("median", mine, other)
    print(f"ratio {other.step_ms / mine.step_ms:.2f} in speed, "
          f"{mine.peak_mib / other.peak_mib:.2f} in memory")
    return mine, other


def show(name, mine, other):
    cells = (f"{run.step_ms:8.1f} {run.peak_mib:7,.0f}" for run in (mine, other))
    print(f"{name:26}" + "".join(cells), flush=True)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="text file to train on")
    parser.add_argument("--program", default=ROOT / "build/cpu/bin/ch04_clipping")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    add_write(parser)
    return parser.parse_args()


def main():
    args = parse_args()
    flags = [f"--{name}={getattr(args, name)}" for name in ["data", "steps", "batch", "threads"]]
    with section(args.write, "tiny", "A training step of `tiny`, beside PyTorch"):
        take_turns(args.rounds, lambda: run_ladder(args.program, [*flags, *SETTINGS]),
                   lambda: run_torch("tiny_torch.py", [*flags, *FASTEST, "--json"], args.threads,
                                     KEPT_MEMORY))


if __name__ == "__main__":
    main()
