#!/usr/bin/env python3
"""Runs the products of bench_operations over the rows of 8 experts, and those of one layer over as
many rows, in turns, and prints how fast the experts are beside the one layer.

    bench/experts.py build/cpu/bin/bench_operations [--repetitions N] [--bar RATIO] [--write FILE]

The one layer's weight gradient has leaves as long as those of an expert are on average. Exit status
1 if a product forward or backward to the input is below --bar: 0.85 is the goal.
"""
import argparse
import collections
import statistics
import sys

from results import add_write, benchmarks, section


def measure(program, repetitions):
    """GFLOP/s of each repetition, by name; repetitions of all products are shuffled."""
    speeds = collections.defaultdict(list)
    for run in benchmarks(program, "^moe-.*/(grouped|one)_", repetitions, "--benchmark_min_time=0.05",
                          "--benchmark_enable_random_interleaving=true")[1]:
        speeds[run["name"]].append(run["GFLOP/s"])
    return speeds


def show(speeds):
    """A line a product; returns the ratios of those that have a bar."""
    print(f"{'GFLOP/s':48}{'experts':>9}{'one':>9}{'ratio':>7}  ratio of the best")
    ratios = []
    for name in sorted(name for name in speeds if "/grouped_" in name):
        both = speeds[name], speeds[name.replace("/grouped_", "/one_")]
        experts, one = (statistics.median(x) for x in both)
        best = max(both[0]) / max(both[1])
        print(f"{name:48}{experts:9.1f}{one:9.1f}{experts / one:7.2f}{best:7.2f}")
        if "backward_weight" not in name:
            ratios.append(experts / one)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--bar", type=float, default=0.85)
    add_write(parser)
    args = parser.parse_args()
    with section(args.write, "experts", "The products of experts"):
        ratios = show(measure(args.program, args.repetitions))
    sys.exit(min(ratios) < args.bar)


if __name__ == "__main__":
    main()
