"""The look that all charts share: colors, sizes, and how a figure becomes part of the page."""

import io
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# Stand-ins for colors that the page chooses, dark on light or light on dark.
INK, LINE, PAPER, MUTED = "#010203", "#040506", "#070809", "#0a0b0c"
OF_THE_PAGE = {INK: "currentColor", LINE: "var(--line)", PAPER: "var(--card)",
               MUTED: "var(--muted)"}

CATEGORIES = {"Param": "#4c78a8", "Master": "#76b7b2", "Grad": "#f28e2b", "Optim": "#59a14f",
              "Activation": "#b07aa1", "Workspace": "#a9a9a9", "Comm": "#e15759"}
OPERATIONS = {"all_reduce": "#4c78a8", "reduce_scatter": "#f28e2b", "all_gather": "#59a14f",
              "broadcast": "#76b7b2", "all_to_all": "#edc948", "send": "#b07aa1"}
GROUPS = {"one rank": "#8a8f98", "data parallel": "#4c78a8", "tensor parallel": "#f28e2b",
          "pipeline parallel": "#59a14f", "3D parallel": "#b07aa1"}
MIB, GIB = 1 << 20, 1 << 30
WIDTH = 9.6  # inches of every figure

matplotlib.rcParams.update({
    "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK,
    "axes.labelcolor": MUTED, "axes.edgecolor": LINE, "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "figure.facecolor": "none", "grid.color": LINE, "grid.linewidth": 0.8,
    "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": MUTED, "ytick.labelcolor": INK,
    "legend.frameon": False, "legend.fontsize": 9,
})


def new_figure(height):
    return plt.subplots(figsize=(WIDTH, height), layout="constrained")


def svg_of(figure, name, words):
    """A figure as an element of the page, `words` saying what it shows to those who hear it."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # A page holds several figures, and each id once.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, choice in OF_THE_PAGE.items():
        svg = svg.replace(color, choice)
    box = re.search(r'viewBox="[^"]*"', svg)[0]
    head = f'<svg class="chart" role="img" {box} xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r"<svg.*?>", f"{head}<title>{words}</title>", svg, count=1, flags=re.DOTALL)


def label_rows(axes, places, runs):
    """Titles of runs on the y axis, the first on top."""
    axes.set_yticks(places, [title_of(run) for run in runs])
    axes.tick_params(axis="both", length=0)
    axes.spines["left"].set_visible(False)


def title_of(run):
    return f"{run.row.chapter[:2]}  {run.row.title}"
