#!/usr/bin/env python3
"""Trains ten small models, fits L(N, D) = E + A / N^alpha + B / D^beta, and predicts an eleventh.

    chapters/23_planner/scaling_runs.py --text runs/bible.txt [--programs build/cpu/bin]
        [--scale 1] [--out runs/scaling.json]
    chapters/23_planner/scaling_runs.py --fit runs/scaling.json    the fit alone

The prediction is printed before the eleventh model is trained. --scale 0.1 takes a tenth of the
steps, to try the script. N are all parameters but the embedding of tokens and the head, D tokens.
Error bars are the middle 80% of fits to runs drawn again with replacement.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

# Layers, heads, channels, steps of 16 sequences of 64 bytes. The last one is held out.
RUNS = [(2, 2, 32, 600), (2, 2, 32, 2400), (2, 4, 64, 600), (2, 4, 64, 1200), (2, 4, 64, 4800),
        (4, 4, 96, 600), (4, 4, 96, 2400), (4, 4, 128, 600), (4, 4, 128, 1200), (4, 4, 128, 2400),
        (4, 8, 192, 1800)]
BATCH, LENGTH = 16, 64


def size(layers, channels):
    """Parameters of the blocks and of the last norm."""
    return layers * (12 * channels**2 + 13 * channels) + 2 * channels


def train(programs, text, shape, scale):
    """The validation loss of one run, and its N and D."""
    layers, heads, channels, steps = shape
    steps = max(20, round(steps * scale))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [Path(programs, "ch04_clipping"), "--data", text, "--model", "tiny", "--layers", layers,
                   "--heads", heads, "--channels", channels, "--batch", BATCH, "--steps", steps, "--lr", 2e-3,
                   "--schedule", "cosine", "--warmup", min(100, steps // 4), "--clip", 1, "--quiet",
                   "--report", report]
        subprocess.run([str(word) for word in command], check=True)
        loss = json.loads(report.read_text())["val_loss"]
    return {"N": size(layers, channels), "D": steps * BATCH * LENGTH, "loss": loss}


def solve(matrix, right):
    """The solution of three equations, by elimination with pivots; None if there is not one."""
    rows = [row + [r] for row, r in zip(matrix, right)]
    for i in range(3):
        pivot = max(range(i, 3), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-15:
            return None
        for k in range(3):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][3] / rows[i][i] for i in range(3)]


def linear_fit(runs, alpha, beta):
    """E, A, B of least relative squares for these exponents; the sum of squares, and they."""
    terms = [[1 / run["loss"], run["N"]**-alpha / run["loss"], run["D"]**-beta / run["loss"]] for run in runs]
    matrix = [[sum(t[i] * t[j] for t in terms) for j in range(3)] for i in range(3)]
    found = solve(matrix, [sum(t[i] for t in terms) for i in range(3)])
    if found is None or min(found) < 0:
        return float("inf"), None
    return sum((sum(c * x for c, x in zip(found, t)) - 1)**2 for t in terms), found


def fit(runs):
    """The law: for given exponents it is linear, and these are searched on grids that narrow."""
    best, center, width = (float("inf"), None, None), (0.5, 0.5), 0.45
    for _ in range(6):
        for i in range(-8, 9):
            for k in range(-8, 9):
                exponents = (center[0] + width * i / 8, center[1] + width * k / 8)
                if min(exponents) < 0.02:
                    continue
                squares, found = linear_fit(runs, *exponents)
                if squares < best[0]:
                    best = (squares, exponents, found)
        if best[1] is None:
            return None
        center, width = best[1], width / 3
    (alpha, beta), (E, A, B) = best[1], best[2]
    return {"E": E, "A": A, "alpha": alpha, "B": B, "beta": beta}


def loss_of(law, run):
    return law["E"] + law["A"] / run["N"]**law["alpha"] + law["B"] / run["D"]**law["beta"]


def again(runs, times=100):
    """Fits to runs drawn with replacement, in the same order at every call."""
    draw = random.Random(1)
    laws = [fit([draw.choice(runs) for _ in runs]) for _ in range(times)]
    return [law for law in laws if law]


def middle(values):
    """The middle 80%."""
    values = sorted(values)
    return values[len(values) // 10], values[-1 - len(values) // 10]


def bars(runs, held_out_at):
    """The law, the middle 80% of each of its numbers, and the same of the loss that it says of a run
    that has not been made."""
    law, others = fit(runs), again(runs)
    if law is None:
        raise SystemExit("scaling_runs.py: no law with positive terms fits these runs")
    numbers = {name: middle([other[name] for other in others]) for name in law}
    return law, numbers, middle([loss_of(other, held_out_at) for other in others])


def worst_error(law, runs):
    return max(abs(loss_of(law, run) / run["loss"] - 1) for run in runs)


def show(runs, held_out_at):
    """Prints all that."""
    law, numbers, (low, high) = bars(runs, held_out_at)
    for name, value in law.items():
        print(f"{name:>6} {value:10.4g}   80%: {numbers[name][0]:.4g} to {numbers[name][1]:.4g}")
    print(f"largest error of a run that was fitted: {100 * worst_error(law, runs):.2f}%")
    print(f"predicted of N {held_out_at['N']}, D {held_out_at['D']}: {loss_of(law, held_out_at):.4f}, "
          f"80%: {low:.4f} to {high:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--programs", type=Path, default=Path("build/cpu/bin"))
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/scaling.json"))
    parser.add_argument("--fit", type=Path)
    args = parser.parse_args()
    if args.fit:
        runs = json.loads(args.fit.read_text())
        show(runs[:-1], runs[-1])
        print(f"measured: {runs[-1]['loss']:.4f}")
        return 0
    if not args.text or not args.scale > 0:
        parser.error("--text FILE and a --scale above 0 are needed, or --fit FILE")
    runs = []
    for shape in RUNS[:-1]:
        runs.append(train(args.programs, args.text, shape, args.scale))
        print("N {N} D {D}: {loss:.4f}".format(**runs[-1]), flush=True)
    layers, _, channels, steps = RUNS[-1]
    show(runs, {"N": size(layers, channels), "D": max(20, round(steps * args.scale)) * BATCH * LENGTH})
    runs.append(train(args.programs, args.text, RUNS[-1], args.scale))
    print(f"measured: {runs[-1]['loss']:.4f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(runs, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
