"""The measured tables of chapter 28: what a save costs in three ways, and how often to save."""

import math
import shutil
import statistics

from measure import ROOT, short_text, table, take_turns

CHAPTER = "28_async_checkpoint"
MODEL = "--model small --batch 4 --ranks 2 --threads 1 --steps 6"
WAYS = {"gathered by rank 0": "--save-every 2 --gather", "each rank its own": "--save-every 2",
        "async": "--save-every 2 --async", "async, every step": "--save-every 1 --async"}
ROUNDS = 3


def middle(numbers, form="{:.0f}"):
    return form.format(statistics.median(numbers)) + f" ({form.format(min(numbers))} to {form.format(max(numbers))})"


def waits(runs):
    """The longest of the ranks, of every save but the last: after that one nothing goes on."""
    return [max(rank[i]["wait_ms"] for rank in r.report["saves"]) for r in runs
            for i in range(len(r.report["saves"][0]) - 1)]


def row(name, runs):
    saves = [rank[0] for rank in runs[0].report["saves"]]
    return [name, middle(waits(runs)),
            " + ".join(f"{s['bytes']:,}" for s in saves), " + ".join(f"{s['writes']:,}" for s in saves),
            middle([r.report["step_ms_median"] for r in runs]), f"`{runs[0].hash[-1]}`"]


def intervals(seconds):
    """Rows of machines: how often to save, and what is lost, by chapter 23's formula."""
    rows = []
    for devices in (8, 1024, 16384):
        failure = 50000 * 3600 / devices
        cells = [f"{devices:,}"]
        for wait in seconds:
            tau = math.sqrt(2 * wait * failure)
            cells += [f"{tau / 60:,.1f} min", f"{100 * (wait / tau + tau / 2 / failure):.2f}%"]
        rows.append(cells)
    return rows


def measure():
    folder = ROOT / "runs" / "saves"
    shutil.rmtree(folder, ignore_errors=True)
    flags = {name: f"{MODEL} {way} --save runs/saves --overwrite" for name, way in WAYS.items()}
    runs = take_turns(ROUNDS, CHAPTER, flags, short_text(batch=4, seq_len=256))
    shutil.rmtree(folder, ignore_errors=True)
    seconds = [statistics.median(waits(runs[name])) / 1000 for name in ("each rank its own", "async")]
    return "\n\n".join([
        f"`{MODEL}`, in {ROUNDS} turns. Milliseconds that training waits for a save, the slower of both "
        "ranks: median (least to most). The last save of a run is left out. Bytes and writes of each "
        "rank. Medians of a step, without its save.",
        table(["save", "wait", "bytes", "writes", "step", "hash"],
              [row(name, runs[name]) for name in WAYS]),
        f"With the median waits, {seconds[0]:.2f} and {seconds[1]:.2f} s, and a failure in 50,000 hours of "
        "a device, as chapter 23 takes them: how often to save, and which share of the time writing and "
        "repeated steps take.",
        table(["devices", "sync: every", "lost", "async: every", "lost"], intervals(seconds)),
    ])
