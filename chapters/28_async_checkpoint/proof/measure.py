"""The measured tables of chapter 28: what a save costs in two ways, and how often to save."""

import json
import math
import shutil
import statistics

from measure import ROOT, run, short_text, table

CHAPTER = "28_async_checkpoint"
MODEL = "--model small --batch 4 --ranks 2 --threads 1 --steps 17"
WAYS = {"none": "", "rank 0 gathers": "--save-every 4",
        "async": "--save-every 4 --async", "async, every step": "--save-every 1 --async"}
ROUNDS = 3


def middle(numbers):
    return f"{statistics.median(numbers):.0f} ({min(numbers):.0f} to {max(numbers):.0f})" if numbers else "-"


def of_saves(runs, what):
    """Milliseconds of the slower rank, but for the first save, for which the system gives new pages, and
    the last, after which nothing goes on."""
    return [max(rank[i][what] for rank in r.report["saves"] if rank) for r in runs
            for i in range(1, len(r.report["saves"][0]) - 1)]


def price(runs, none):
    """Milliseconds of a save: what training waits, and what its steps lose beside a thread."""
    alone = statistics.median(r.report["step_ms_median"] for r in none)
    slower = [ms - alone for r in runs for ms in while_writing(r)]
    saves = len(of_saves(runs, "wait_ms"))
    return statistics.median(of_saves(runs, "wait_ms")) + sum(slower) / saves


def while_writing(run):
    """Milliseconds of steps that a thread writes in for half their time at least."""
    spans = {name: [(e["ts"], e["ts"] + e["dur"]) for e in run.events if e.get("name") == name and e["pid"] == 1]
             for name in ("step", "write")}
    shared = lambda a, b: sum(max(0, min(b, d) - max(a, c)) for c, d in spans["write"][1:])
    return [(b - a) / 1000 for a, b in spans["step"] if shared(a, b) > (b - a) / 2]


def row(name, runs, none):
    saves = [rank[0] for rank in runs[0].report["saves"] if rank]
    is_async = "--async" in WAYS[name]
    counted = lambda what: " + ".join(f"{s[what]:,}" for s in saves) if is_async else "-"
    middles = [middle(of_saves(runs, what)) if is_async or what == "wait_ms" else "-"
               for what in ("wait_ms", "copy_ms", "write_ms", "sync_ms")]
    alone = statistics.median(r.report["step_ms_median"] for r in none)
    steps = [ms for r in runs for ms in while_writing(r)]
    during = f"{statistics.median(steps):.0f}, {statistics.median(steps) / alone:.2f} times" if steps else "-"
    return [name, *middles, counted("writes"), counted("bytes"), during, f"{price(runs, none):.0f}", f"`{runs[0].hash[-1]}`"]


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
    timeline = folder.parent / "timeline.json"
    runs = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            flags = f"{MODEL} {way} --timeline {timeline}" + (f" --save {folder} --overwrite" if way else "")
            runs[name].append(run(CHAPTER, flags, short_text(batch=4, seq_len=256)))
            runs[name][-1].events = json.loads(timeline.read_text())["traceEvents"]
    shutil.rmtree(folder, ignore_errors=True)
    alone = middle([r.report["step_ms_median"] for r in runs["none"]])
    seconds = [round(price(runs[name], runs["none"])) / 1000 for name in ("rank 0 gathers", "async")]
    return "\n\n".join([
        f"`{MODEL} --save-every 4`, in {ROUNDS} turns. (*Every step* has `--save-every 1`.) Times are milliseconds of the "
        "slower rank, median (least to most). They leave out the first save of a run, for which the system gives new pages, and the last, after which no step "
        "follows.",
        "\n".join([
            "- `wait`: how long training waits. Without `--async` that is the whole save. With it, it is the copy, the "
            "sending of checksums, and any wait for a thread.",
            "- `copy`: how long the copy takes",
            "- `write`, `sync`: how long a rank writes, and how long it then waits for the disk",
            "- `writes`, `bytes`: those of each rank, with the headers of the files",
            "- `step`: a step beside a save, in which a thread writes for at least half the time; and how many "
            f"times a step without saves that is. A step without saves takes {alone} ms.",
            "- `price`, of one save: `wait`, and what the steps beside it lose"]),
        table(["save", "wait", "copy", "write", "sync", "writes", "bytes", "step", "price", "hash"],
              [row(name, runs[name], runs["none"]) for name in WAYS if name != "none"]),
        "The next table shows how often to save, and the share of time that is lost to saves and repeated steps. It "
        f"takes the prices of this small model, {seconds[0]:.3f} and {seconds[1]:.3f} s, and one failure of a device in "
        "50,000 hours, as Llama 3's run had. A larger model on more disks has other prices.",
        table(["devices", "rank 0 gathers: every", "lost", "async: every", "lost"], intervals(seconds)),
    ])
