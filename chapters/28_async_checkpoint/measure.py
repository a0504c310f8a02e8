"""The measured tables of chapter 28: what a save costs in three ways, and how often to save."""

import math
import shutil
import statistics

from measure import ROOT, short_text, table, take_turns

CHAPTER = "28_async_checkpoint"
STEPS = 9
MODEL = f"--model small --batch 4 --ranks 2 --threads 1 --steps {STEPS}"
WAYS = {"none": "", "gathered by rank 0": "--save-every 2 --gather", "each rank its own": "--save-every 2",
        "async": "--save-every 2 --async", "async, every step": "--save-every 1 --async"}
ROUNDS = 3


def middle(numbers):
    return f"{statistics.median(numbers):.0f} ({min(numbers):.0f} to {max(numbers):.0f})" if numbers else "-"


def slower(runs, what):
    """Milliseconds of the slower rank, of every save but the last: after that one nothing goes on."""
    return [max(rank[i][what] for rank in r.report["saves"]) for r in runs
            for i in range(len(r.report["saves"][0]) - 1)]


def step(run):
    """Milliseconds of a step, mean: a median would hide a step in three that is slow."""
    return 4 * 256 / run.report["tokens_per_second"] * 1000


def row(name, runs, none):
    """Of the first way the others are told apart by the ratio to the same turn."""
    saves = [rank[0] for rank in runs[0].report["saves"] if rank]
    counted = lambda what: " + ".join(f"{s[what]:,}" for s in saves) or "-"
    ratio = statistics.median(step(r) / step(n) for r, n in zip(runs, none))
    copy = middle([min(rank[i]["copy_ms"] for rank in r.report["saves"]) for r in runs
                   for i in range(len(r.report["saves"][0]) - 1)]) if "--async" in WAYS[name] else "-"
    return [name, middle(slower(runs, "wait_ms")), copy, f"{runs[0].memory('Staging'):,}",
            counted("bytes"), counted("writes"), f"{statistics.median(step(r) for r in runs):.0f}",
            f"{ratio:.2f}", f"`{runs[0].hash[-1]}`"]


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
    flags = {name: f"{MODEL} {way}" + (" --save runs/saves --overwrite" if way else "")
             for name, way in WAYS.items()}
    runs = take_turns(ROUNDS, CHAPTER, flags, short_text(batch=4, seq_len=256))
    shutil.rmtree(folder, ignore_errors=True)
    seconds = [statistics.median(slower(runs[name], "wait_ms")) / 1000
               for name in ("each rank its own", "async")]
    return "\n\n".join([
        f"`{MODEL}`, in {ROUNDS} turns. Milliseconds that training waits for a save, the slower of both "
        "ranks, and that the copy takes, the faster of both: median (least to most). The last save of a "
        "run is left out. Bytes of `Staging`, of rank 0. Bytes and writes of each rank. Milliseconds of "
        "a step without its save, mean, and their ratio to steps without saves.",
        table(["save", "wait", "copy", "staging", "bytes", "writes", "step", "ratio", "hash"],
              [row(name, runs[name], runs["none"]) for name in WAYS]),
        f"With the median waits, {seconds[0]:.2f} and {seconds[1]:.2f} s, and a failure in 50,000 hours of "
        "a device, as chapter 23 takes them: how often to save, and which share of the time writing and "
        "repeated steps take.",
        table(["devices", "sync: every", "lost", "async: every", "lost"], intervals(seconds)),
    ])
