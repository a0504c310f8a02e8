"""The measured tables of chapter 26: three distributions of lengths, what packing makes of them, and time."""

import contextlib
import os
import random
import statistics

from measure import ROOT, run, table, take_turns

CHAPTER = "26_packing"
T, M, WINDOW, ROUNDS = 1024, 64, 1024, 5
DOCUMENTS = f"--documents --end-of-text 10 --row-documents {M}"
# The model does not matter to the plan.
COUNTED = f"--model llama-nano --layers 1 --channels 16 --seq-len {T} --batch 1 --micro-batch 1 --quiet"
TIMED = "--model llama-tiny --threads 1 --quiet"
# A length in tokens, and a window of some 50 to 90 rows for a short run.
KINDS = {
    "log-normal, median 400, sigma 1": (lambda draw: 1 + round(draw.lognormvariate(5.99, 1)), 128),
    "exponential, mean 100": (lambda draw: 2 + round(draw.expovariate(1 / 99)), 512),
    "20 each": (lambda draw: 21, 2560),
}


def documents(kind, count):
    """Lengths. Each document has its end and a token at least."""
    draw = random.Random(1)
    return [max(2, KINDS[kind][0](draw)) for _ in range(count)]


def write(lengths):
    """Documents of random letters, each a line, and as many as are held out behind them."""
    draw, path = random.Random(2), ROOT / "runs" / "documents.txt"
    lines = (bytes(draw.choices(b"abcdefghijklmnop     ", k=n - 1)) for n in lengths + lengths[:len(lengths) // 9])
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def rows_of(lengths, pack):
    """How many rows a window of these documents takes: chapters/26_packing/plan.h once more."""
    pieces = [min(T, n - 1 - at) for n in lengths for at in range(0, n - 1, T)]
    rows = []  # of each, how many positions and how many documents it has room for
    for piece in sorted(pieces, reverse=True) if pack == "ffd" else pieces:
        fit = next((row for row in (rows if pack == "ffd" else rows[-1:]) if row[0] >= piece and row[1] > 0), None)
        if not fit:
            rows.append(fit := [T, M])
        fit[0], fit[1] = fit[0] - piece, fit[1] - 1
    return len(rows)


def share(part, of):
    return f"{100 * part / of:.1f}%"


def plans():
    """Of one whole window each."""
    rows = []
    for kind in KINDS:
        lengths = documents(kind, WINDOW)
        text = write(lengths)
        for plan, pack in (("--pack ffd", "ffd"), ("--pack greedy", "greedy"), ("--unpacked", "ffd")):
            flags = f"{COUNTED} --steps {rows_of(lengths, pack)} {DOCUMENTS} --pack-window {WINDOW} {plan}"
            got = run(CHAPTER, flags, text).report["extra"]["packing"]
            if got["trained"] != sum(lengths) - len(lengths):
                raise SystemExit(f"measure.py: {flags}: {got['trained']} positions are not a window")
            positions = got["rows"] * T
            rows.append([kind, f"`{plan}`", f"{got['rows']:,}", share(got["trained"], positions),
                         share(got["padded"], positions), share(got["cut"], got["trained"]),
                         share(got["pairs"], got["trained"] * (T + 1) / 2)])
    return table(["lengths", "flag", "rows", "trained", "padded", "cut", "pairs"], rows)


def rates(whole, packed, text):
    """Trained positions a second of runs with these flags, medians; the median of their ratios in a round, and the range."""
    wanted = {"whole": (CHAPTER, f"{TIMED} {whole}"), "packed": (CHAPTER, f"{TIMED} {packed}")}
    runs = take_turns(ROUNDS, wanted, text)
    pairs = [[r.report["tokens_per_second"] for r in both] for both in zip(*runs.values())]
    ratios = sorted(b / a for a, b in pairs)
    return [*(f"{statistics.median(some):,.0f}" for some in zip(*pairs)), f"{statistics.median(ratios):.2f}",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}"]


def times():
    with contextlib.suppress(PermissionError):  # other work on the machine waits, if this user may ask for that
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    rows = []
    for kind, (_, window) in KINDS.items():
        lengths = documents(kind, window)
        steps, trained = rows_of(lengths, "ffd"), sum(lengths) - len(lengths)
        whole = f"--seq-len {T} --batch 1 --steps {round(trained / T)}"
        packed = f"--seq-len {T} --batch 1 --steps {steps} {DOCUMENTS} --pack-window {window}"
        rows.append([kind, f"rows of {T:,}", f"{window:,}", share(trained, steps * T),
                     *rates(whole, packed, write(lengths))])
    # Ten of them fill a row: nothing differs but borders.
    rows.append(["100 each, rows of 1,000", "rows of 100", "500", "100.0%",
                 *rates("--seq-len 100 --batch 10 --steps 50",
                        f"--seq-len 1000 --batch 1 --steps 50 {DOCUMENTS} --pack-window 500", write([101] * 500))])
    return table(["lengths", "compared with", "`--pack-window`", "trained, share", "whole rows, positions/s",
                  "packed, trained positions/s", "ratio", "range"], rows)


def measure():
    return "\n\n".join([
        f"Rows of {T} tokens, `--row-documents {M}`, one whole window of `--pack-window {WINDOW}`. *Trained* and *padded* "
        "are shares of all positions of the rows. *Cut* is the share of trained positions that do not see the beginning "
        "of their document. *Pairs* says how many pairs of a query and a key attention computes, as a share of those "
        "in whole rows with as many targets. Which documents share a row changes nothing in it.",
        plans(),
        f"`{TIMED} --seq-len {T} --batch 1`: trained positions a second, in whole rows of text and, with `{DOCUMENTS}`, in "
        "one whole window of documents with as many targets; `--steps` is the number of rows. (In the last line: 50 steps "
        f"of `--seq-len 100 --batch 10` and of `--seq-len 1000`.) {ROUNDS} rounds in turns, at real-time "
        "priority; rates and ratio are medians. Windows of other sizes than above keep runs short.",
        times(),
    ])
