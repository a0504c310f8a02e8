#!/usr/bin/env python3
"""How long `labs/lab.py check NN` takes: from a saved file to the verdict, compiling included.

    bench/lab_checks.py [--build build/cpu] [--rounds 3] [--write]

The reference stands in as the student's file, a stub where it is not in the tree. Without ccache,
which would know the reference. What a lab needs beside that file is built before the clock starts.
The last row has the median and the largest of the medians. --write puts the table into
docs/results/labs.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "labs")]
from engine.labs import all_labs, stub  # noqa: E402
from measure import commit, machine, table  # noqa: E402


def check(lab, work, build):
    """Seconds of one check."""
    command = [sys.executable, ROOT / "labs/lab.py", "--work", work, "--build", build, "check", lab.number]
    start = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"CCACHE_DISABLE": "1"})
    if run.returncode != (1 if lab.is_extension else 0):
        sys.exit(f"lab {lab.number}: {run.stdout}{run.stderr}")
    return time.monotonic() - start


def times_of(lab, work, build, rounds):
    times = []
    for _ in range(rounds + 1):  # each time a file that has just been saved
        for path in lab.files:
            file = Path(work) / lab.number / path
            file.parent.mkdir(parents=True, exist_ok=True)
            text = stub(lab, path) if lab.is_extension else (ROOT / path).read_text(encoding="utf-8")
            file.write_text(text, encoding="utf-8")
        times.append(check(lab, work, build))
    return times[1:]  # the first one has built the rest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows, medians = [], []
    with tempfile.TemporaryDirectory() as work:
        for lab in all_labs():
            times = times_of(lab, work, args.build.resolve(), args.rounds)
            medians.append(statistics.median(times))
            rows.append([lab.name, f"{medians[-1]:.1f}", f"{max(times):.1f}"])
            print(*rows[-1], flush=True)
    rows.append(["all: median, worst", f"{statistics.median(medians):.1f}", f"{max(medians):.1f}"])
    text = (f"# Labs\n\nSeconds of `labs/lab.py check NN`, from a saved file to the verdict.\n\n"
            f"Machine: {machine()}. Commit {commit()}; `bench/lab_checks.py --write`. {args.rounds} checks of each lab.\n\n"
            + table(["lab", "median, s", "longest, s"], rows) + "\n")
    print(text)
    if args.write:
        (ROOT / "docs/results/labs.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
