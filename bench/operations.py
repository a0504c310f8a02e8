#!/usr/bin/env python3
"""Runs bench_operations and prints a table: operations of the `cpu` table, what each must move
and compute, and how near it comes to what this machine can do.

    bench/operations.py build/cpu/bin/bench_operations [--filter REGEX] [--repetitions N]

Others use the machine, too. Of operands in the caches the fastest repetition counts. Those beyond
take turns with copies and with reading alone, whose speeds are in the last columns: of them the
repetition counts whose per cent of a copy are in the middle. What only reads hardly passes the last.
`of roofline` is ideal time over measured time; far more than 100% says that the operands fit the
caches (bench/operations.cpp).
"""
import argparse
import collections

from results import add_write, benchmarks, section


def measure(program, repetitions, pattern):
    """(what the machine can do, {operation: counters of the repetition that counts})."""
    runs = collections.defaultdict(list)
    context, repeated = benchmarks(program, pattern, repetitions, "--benchmark_min_time=0.1")
    for run in repeated:
        runs[run["name"]].append(run)
    return context["ceilings"], {name: counts(of) for name, of in runs.items()}


def counts(runs):
    ordered = sorted(runs, key=lambda run: run["roofline%"])
    return ordered[len(ordered) // 2 if "copy GB/s" in ordered[0] else -1]


def show(ceilings, operations):
    print(ceilings)
    print(f"\n{'operation':42}{'us':>10}{'MB':>9}{'MFLOP':>9}{'GB/s':>8}{'GFLOP/s':>9}"
          f"{'of roofline':>13}{'copy GB/s':>11}{'read GB/s':>11}")
    for name, run in operations.items():
        us = run["MB"] / run["GB/s"] * 1e3
        memory = "".join(f"{run[of]:11.1f}" for of in ("copy GB/s", "read GB/s") if of in run)
        print(f"{name:42}{us:10.1f}{run['MB']:9.2f}{run['MFLOP']:9.1f}{run['GB/s']:8.1f}"
              f"{run['GFLOP/s']:9.1f}{run['roofline%']:12.0f}%{memory}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--filter", default=".", metavar="REGEX",
                        help="such as beyond/: what memory bounds")
    parser.add_argument("--repetitions", type=int, default=9)
    add_write(parser)
    args = parser.parse_args()
    ceilings, operations = measure(args.program, args.repetitions, args.filter)
    with section(args.write, "operations", "Every operation, beside what the machine can do"):
        show(ceilings, operations)


if __name__ == "__main__":
    main()
