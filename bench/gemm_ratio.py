#!/usr/bin/env python3
"""Runs bench_gemm, ours, OpenBLAS and oneDNN interleaved at random, and prints the ratio of our
speed to that of the faster of both.

    bench/gemm_ratio.py build/cpu/bin/bench_gemm [--repetitions N] [--filter REGEX]

Exit status 1 if any ratio of medians is below --bar (0.8).
"""
import argparse
import collections
import json
import statistics
import subprocess
import sys


def measure(program, repetitions, pattern):
    """GFLOP/s of each repetition: {shape: {"ours": [...], "openblas": [...], "onednn": [...]}}."""
    report = subprocess.run(
        [program, f"--benchmark_repetitions={repetitions}", f"--benchmark_filter={pattern}",
         "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.05",
         "--benchmark_format=json"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    speeds = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in json.loads(report)["benchmarks"]:
        if run["run_type"] == "iteration":
            shape, _, who = run["run_name"].removesuffix("/real_time").rpartition("/")
            speeds[shape][who].append(run["GFLOP"])
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--filter", default=".")
    parser.add_argument("--bar", type=float, default=0.8)
    args = parser.parse_args()

    print(f"{'shape':36} {'ours':>8} {'OpenBLAS':>8} {'oneDNN':>8} {'ratio':>6}   "
          "(median GFLOP/s; ours / the faster peer)")
    ratios = []
    for shape, who in sorted(measure(args.program, args.repetitions, args.filter).items()):
        ours, *peers = (statistics.median(who[name]) for name in ("ours", "openblas", "onednn"))
        ratios.append(ours / max(peers))
        print(f"{shape:36} {ours:8.1f} {peers[0]:8.1f} {peers[1]:8.1f} {ratios[-1]:6.2f}")
    print(f"{len(ratios)} shapes: lowest ratio {min(ratios):.2f}, "
          f"median {statistics.median(ratios):.2f}")
    sys.exit(min(ratios) < args.bar)


if __name__ == "__main__":
    main()
