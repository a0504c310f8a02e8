"""The charts of the page: loss, time, memory, traffic. One idea each; and the look that all share."""

import base64
import io
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from plot import GREY, pyplot  # noqa: E402

plt = pyplot()

CATEGORIES = {"Param": "#4c78a8", "Master": "#76b7b2", "Grad": "#f28e2b", "Optim": "#59a14f",
              "Activation": "#b07aa1", "Workspace": "#a9a9a9", "Comm": "#e15759"}
OPERATIONS = {"all_reduce": "#4c78a8", "reduce_scatter": "#f28e2b", "all_gather": "#59a14f",
              "broadcast": "#76b7b2", "all_to_all": "#edc948", "send": "#b07aa1"}
GROUPS = {"one rank": "#8a8f98", "data parallel": "#4c78a8", "tensor parallel": "#f28e2b",
          "pipeline parallel": "#59a14f", "3D parallel": "#b07aa1"}
MIB = 1 << 20
WIDTH = 9.6  # inches of every figure

plt.rcParams.update({"font.size": 9, "axes.axisbelow": True, "grid.alpha": 0.25, "grid.color": GREY})


def new_figure(height):
    return plt.subplots(figsize=(WIDTH, height), layout="constrained")


def image_of(figure, words):
    """A figure as an element of the page. Screen readers read `words`, which say what it shows."""
    picture = io.BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(picture.getvalue()).decode()
    return f'<img class="chart" alt="{words}" src="data:image/svg+xml;base64,{data}">'


def label_rows(axes, places, runs):
    """Titles of runs on the y axis, the first on top."""
    axes.set_yticks(places, [title_of(run) for run in runs])
    axes.tick_params(axis="both", length=0)
    axes.spines["left"].set_visible(False)


def title_of(run):
    return f"{run.row.chapter[:2]}  {run.row.title}"


BAR = 0.26  # inches of height
VALUE = {"va": "center", "fontsize": 8}  # a number at the end of its bar
SPLITTING = "04_clipping"  # the first chapter that knows micro-batches


def time_chart(runs):
    """A bar for each run, colored by what its ranks split."""
    figure, axes = new_figure(0.7 + BAR * len(runs))
    times, most = [run.ms for run in runs], max(max(run.times) for run in runs)
    axes.barh(range(len(runs)), times, height=0.68,
              color=[GROUPS[run.row.group] for run in runs])
    for y, run in enumerate(runs):
        axes.plot([min(run.times), max(run.times)], [y, y], color=GREY, linewidth=1)
        axes.text(max(run.times) + 0.008 * most, y, f"{times[y]:.1f} ms · speed {run.speed:.2f}", **VALUE)
    label_rows(axes, range(len(runs)), runs)
    axes.set_ylim(len(runs) - 0.4, -0.6)
    axes.set_xlim(0, 1.28 * most)
    axes.set_xlabel("milliseconds a step: median over rounds, the line from least to most; speed to chapter 06")
    axes.grid(axis="x")
    add_legend(axes, {run.row.group: GROUPS[run.row.group] for run in runs})
    return image_of(figure, "Milliseconds a step of every run")


def add_legend(axes, colors):
    """Colored squares above the chart."""
    axes.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=color, label=name) for name, color in colors.items()],
                loc="lower left", bbox_to_anchor=(0, 1), ncol=len(colors), handlelength=1,
                handleheight=1, borderaxespad=0.2, columnspacing=1.4)


def stacked(axes, y, height, parts, colors):
    """One bar of {name: bytes}, in the order of the colors. Returns its end in MiB."""
    left = 0.0
    for name in colors:
        if parts.get(name):
            width = parts[name] / MIB
            axes.barh(y, width, left=left, height=height, color=colors[name])
            left += width
    return left


def rank_bars(words, label, rows, colors, runs):
    """Stacked bars, one for each rank: rows is [[{part: bytes} of a rank, ...] of a run, ...]."""
    most = max(map(len, rows))
    thin = 0.8 if most == 1 else 0.42 if most <= 2 else 0.2
    tall = [max(1.0, thin * len(ranks) + 0.35) for ranks in rows]
    figure, axes = new_figure(0.8 + BAR * sum(tall))
    places, ends, top = [], [], 0.0
    for ranks, height in zip(rows, tall):
        middle = top + height / 2
        first = middle - thin * (len(ranks) - 1) / 2
        thick = 0.68 if len(ranks) == 1 else 0.86 * thin
        end = max(stacked(axes, first + thin * i, thick, parts, colors)
                  for i, parts in enumerate(ranks))
        places.append(middle)
        ends.append(end)
        top += height
    for middle, end in zip(places, ends):
        axes.text(end + 0.008 * max(ends), middle, f"{end:.1f} MiB", **VALUE)
    label_rows(axes, places, runs)
    axes.set_ylim(top, 0)
    axes.set_xlim(0, 1.1 * max(ends) or 1)
    axes.set_xlabel(label)
    axes.grid(axis="x")
    used = {part for ranks in rows for parts in ranks for part, n in parts.items() if n}
    add_legend(axes, {part: color for part, color in colors.items() if part in used})
    return image_of(figure, words)


def memory_chart(runs):
    """Only runs that split their batch. The others hold the activations of the whole batch: beside their
    bars those of these runs would be too short to be read."""
    split = [run for run in runs if run.row.knows(SPLITTING)]
    return rank_bars("Peak bytes of every rank by category",
                     "peak MiB, one bar a rank, rank 0 on top; the number is the largest rank's",
                     [run.ranks for run in split], CATEGORIES, split)


def traffic_chart(runs):
    """Only runs whose ranks send something."""
    talking = [run for run in runs if run.sent]
    if not talking:
        return ""
    return rank_bars("Bytes that every rank sends in a step, by operation",
                     "MiB sent in a step, one bar a rank; the number is the largest rank's",
                     [run.traffic for run in talking],
                     OPERATIONS, talking)
