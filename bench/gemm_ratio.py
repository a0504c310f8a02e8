#!/usr/bin/env python3
"""Runs bench_gemm, which times ours, OpenBLAS and oneDNN in turn, and prints the ratio of our speed
to that of the faster of both.

    bench/gemm_ratio.py build/cpu/bin/bench_gemm [--rounds N] [--repetitions N] [--precision fp32|bf16]
        [--best]

Exit status 1 if any ratio is below 0.95 in FP32, 0.85 in BF16. On a virtual
machine whose cores others use, too, a median says how much they did just then: --best compares the
fastest repetition of each, out of many. The repetitions of a shape follow each other, a few seconds
in all; --rounds runs the program so many times, so that a shape has its turn again minutes later.

OpenBLAS 0.3.21 does not know the newest CPUs and then computes with AVX2; OPENBLAS_CORETYPE=SkylakeX
gives it AVX-512. Leave OMP_PROC_BIND unset: it would tie all of our threads to the core of the first.
"""
import argparse
import collections
import statistics
import sys

from results import add_write, benchmarks, section

NAMES = {"ours": "ours", "openblas": "OpenBLAS", "onednn": "oneDNN"}
BARS = {"fp32": 0.95, "bf16": 0.85}


def measure(program, rounds, repetitions, pattern):
    """GFLOP/s of each repetition: {shape: {"ours": [...], "openblas": [...], "onednn": [...]}}."""
    speeds = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(rounds):
        for run in benchmarks(program, pattern, repetitions)[1]:
            for who in NAMES.keys() & run.keys():
                speeds[run["name"]][who].append(run[who])
    return speeds


def show(speeds, typical, word):
    """A line a shape; returns the ratios."""
    names = [name for name in NAMES if any(name in who for who in speeds.values())]
    print(f"{'shape':40}" + "".join(f"{NAMES[name]:>9}" for name in names) +
          f"{'ratio':>7}   ({word} GFLOP/s; ours / the faster peer)")
    ratios = []
    for shape, who in sorted(speeds.items()):
        speed = {name: typical(who[name]) for name in names if name in who}
        ratios.append(speed["ours"] / max(v for name, v in speed.items() if name != "ours"))
        print(f"{shape:40}" + "".join(f"{speed[name]:9.1f}" for name in names) +
              f"{ratios[-1]:7.2f}")
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--precision", choices=BARS, default="fp32")
    parser.add_argument("--filter", default="(qkv|proj|fc|mlp|head)/", metavar="REGEX",
                        help="how names of shapes begin, such as 'proj/.*/threads1'")
    parser.add_argument("--best", action="store_true", help="repetition of each, not the median")
    add_write(parser)
    args = parser.parse_args()
    bar = BARS[args.precision]
    pattern = ("^bf16/" if args.precision == "bf16" else "^") + args.filter
    speeds = measure(args.program, args.rounds, args.repetitions, pattern)
    precision = args.precision.upper()
    with section(args.write, f"gemm_{args.precision}", f"The matrix product in {precision}"):
        ratios = show(speeds, max if args.best else statistics.median,
                      "best" if args.best else "median")
        below = sum(ratio < bar for ratio in ratios)
        print(f"{len(ratios)} shapes: lowest ratio {min(ratios):.2f}, "
              f"median {statistics.median(ratios):.2f}; {below} below {bar}")
    sys.exit(below > 0)


if __name__ == "__main__":
    main()
