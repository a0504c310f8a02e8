#!/usr/bin/python3
"""Draws one step of a --timeline: a row for each thread, what it did as colored bars.

    scripts/timeline_svg.py runs/timeline.json --out step.svg [--step 2] [--rank 0]

Neighboring spans of one kind become one bar, so that the picture stays small; ui.perfetto.dev
shows the file itself.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import plot

# Kinds of spans in the order of the legend, and their colors.
KINDS = {"forward": "#7fb3d5", "backward": "#1f618d", "update": "#a9a9a9", "waiting": "#f5cba7",
         "sum over ranks": "#ca6f1e", "gather": "#7d9f35", "exchange": "#7a5195"}
COMMUNICATION = {"all_reduce": "sum over ranks", "reduce_scatter": "sum over ranks",
                 "all_gather": "gather", "broadcast": "gather", "all_to_all": "exchange",
                 "ring_keys": "exchange", "ring_gradients": "exchange"}


def kind_of(name):
    """The kind of a span. None: it is not drawn, such as the span of a whole step."""
    if name == "step":
        return None
    if name.startswith("wait"):
        return "waiting"
    if name in COMMUNICATION:
        return COMMUNICATION[name]
    if "_backward" in name or name == "head_loss_and_gradient":
        return "backward"
    return "forward" if name.endswith("_forward") else "update"


def rows_of(path):
    """{row: [(name, begin ms, end ms)]} of a --timeline."""
    events = json.loads(Path(path).read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {name: [] for name in names.values()}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        rows[names[e["tid"]]].append((e["name"], 1e-3 * e["ts"], 1e-3 * (e["ts"] + e["dur"])))
    return rows


def bars(spans, begin, end, least):
    """(kind, begin, end) between two times; spans of one kind less than `least` apart are one. A
    message is a bar of its own, however close the next follows."""
    merged = []
    for name, b, e in spans:
        kind = kind_of(name)
        if kind is None or b < begin or b >= end:
            continue
        last = merged[-1] if merged else None
        message = name in COMMUNICATION
        if last and last[0] == kind and not message and b - last[2] < least:
            last[2] = max(e, last[2])
        else:
            merged.append([kind, b, e])
    return merged


def step_of(rows, rank, step):
    """Begin and end of a step, which rank `rank` itself records."""
    steps = [span for span in rows[f"rank {rank}"] if span[0] == "step"]
    if not 0 <= step < len(steps):
        fail(f"--step {step}: the file has {len(steps)} steps, from 0")
    return steps[step][1:]


def draw(axes, title, rows, rank, step, used):
    """Adds the kinds that it meets to `used`; returns the step's milliseconds."""
    begin, end = step_of(rows, rank, step)
    own = [name for name in rows if name == f"rank {rank}" or name.startswith(f"rank {rank},")]
    for y, name in enumerate(own):
        for kind, b, e in bars(rows[name], begin, end, least=0.002 * (end - begin)):
            used.add(kind)
            axes.broken_barh([(b - begin, e - b)], (y - 0.36, 0.72), facecolors=KINDS[kind],
                             edgecolors="white", linewidth=0.6)
    axes.set_yticks(range(len(own)), own)
    axes.set_ylim(len(own) - 0.5, -0.5)
    axes.set_title(f"{title}: {end - begin:.0f} ms", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return end - begin


def what_is_missing():
    """What this Python lacks for a picture; empty if nothing."""
    if importlib.util.find_spec("matplotlib"):
        return ""
    return f"{sys.executable} has no matplotlib; with Debian's python3-matplotlib /usr/bin/python3 has"


def save(path, timelines, step, rank=0):
    """One picture of {title: rows}, one below the other, on one scale of time."""
    plt = plot.pyplot()
    plt.rcParams["svg.fonttype"] = "none"
    from matplotlib.patches import Patch
    heights = [1.3 + sum(n == f"rank {rank}" or n.startswith(f"rank {rank},") for n in rows)
               for rows in timelines.values()]
    figure, all_axes = plt.subplots(len(timelines), sharex=True, squeeze=False,
                                    figsize=(8, 0.55 * sum(heights) + 0.9),
                                    gridspec_kw={"height_ratios": heights})
    used = set()
    longest = max(draw(axes, title, rows, rank, step, used)
                  for axes, (title, rows) in zip(all_axes[:, 0], timelines.items()))
    all_axes[-1, 0].set(xlabel="ms since the step began", xlim=(0, 1.01 * longest))
    figure.legend(handles=[Patch(color=KINDS[kind], label=kind) for kind in KINDS if kind in used],
                  loc="lower center", ncol=len(used), fontsize=9)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    plot.save(figure, path)


def fail(message):
    print(f"timeline_svg.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("timeline")
    parser.add_argument("--out", required=True)
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    args = parser.parse_args()
    if what_is_missing():
        fail(what_is_missing())
    try:
        rows = rows_of(args.timeline)
    except OSError as e:
        fail(f"{args.timeline}: {e.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        fail(f"{args.timeline}: no timeline of a run")
    if not rows:
        fail(f"{args.timeline}: no timeline of a run")
    if f"rank {args.rank}" not in rows:
        fail(f"--rank {args.rank}: the file has {', '.join(rows)}")
    try:
        save(args.out, {Path(args.timeline).stem: rows}, args.step, args.rank)
    except (OSError, ValueError) as e:  # ValueError: a suffix that matplotlib does not know
        fail(f"--out {args.out}: {e}")


if __name__ == "__main__":
    main()
