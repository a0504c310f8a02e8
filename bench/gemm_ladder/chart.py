#!/usr/bin/env python3
"""Table and chart of the ladder of matrix products, from the JSON of its benchmark.

    bench/gemm_ladder/chart.py runs/gemm_ladder.json [more reports]

Rewrites README.md between its marks, and gemm_ladder.svg, both beside this script. Of all
repetitions in all reports it takes the fastest: what the code can do, not what the machine was
busy with. Needs python3-matplotlib.
"""

import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from marked import replaced  # noqa: E402
from measure import commit, machine, table  # noqa: E402
from plot import pyplot, save  # noqa: E402

LABELS = {"naive": "1 naive", "reordered": "2 reordered", "blocked": "3 blocked",
          "register_tiled": "4 register-tiled", "packed": "5 packed",
          "ladder_1_thread": "Ladder's own, 1 thread", "threaded": "6 threaded",
          "ladder": "Ladder's own"}


def read(paths):
    """({size: {rung: GFLOP/s}}, threads, repetitions), the rungs in the order of LABELS."""
    best, count = collections.defaultdict(dict), collections.Counter()
    for path in paths:
        report = json.loads(pathlib.Path(path).read_text())
        for run in report["benchmarks"]:
            if run["run_type"] != "iteration":
                continue
            size, rung = run["run_name"].split("/")[:2]
            best[size][rung] = max(run["GFLOP"], best[size].get(rung, 0))
            count[size, rung] += 1
    if not best or any(set(rungs) != set(LABELS) for rungs in best.values()):
        raise SystemExit("chart.py: that is no whole run of bench_gemm_ladder")
    sizes = sorted(best, key=lambda size: -int(size.split("x")[0]))
    in_order = {size: {rung: best[size][rung] for rung in LABELS} for size in sizes}
    return in_order, report["context"]["threads"], min(count.values())


def label(rung, threads):
    many = rung in ("threaded", "ladder")
    return LABELS[rung] + (f", {threads} threads" if many else "")


def draw(best, threads):
    rungs = list(next(iter(best.values())))
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    height = 0.8 / len(best)
    for i, (size, speeds) in enumerate(best.items()):
        places = [row + (i - (len(best) - 1) / 2) * height for row in range(len(rungs))]
        bars = axes.barh(places, [speeds[rung] for rung in rungs], height, label=size)
        axes.bar_label(bars, fmt="%.3g", padding=2, fontsize=7)
    axes.set_yticks(range(len(rungs)), [label(rung, threads) for rung in rungs])
    axes.invert_yaxis()
    axes.set(xlabel="GFLOP/s")
    axes.legend(title="M x N x K")
    save(figure, HERE / "gemm_ladder.svg")


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: chart.py REPORT.json...")
    best, threads, repetitions = read(sys.argv[1:])
    draw(best, threads)
    square = next(iter(best.values()))
    rows = [[label(rung, threads), *(f"{speeds[rung]:.1f}" for speeds in best.values()),
             f"{square[rung] / square['naive']:.0f}"] for rung in square]
    body = "\n\n".join([
        f"Measured on: {machine()}; commit {commit()}. GFLOP/s, the best of at least "
        f"{repetitions} repetitions, because other programs were running.",
        table(["rung", *best, "times naive"], rows),
        "![GFLOP/s of each rung](gemm_ladder.svg)"])
    readme = HERE / "README.md"
    readme.write_text(replaced(readme.read_text(), "measured", body))


if __name__ == "__main__":
    main()
