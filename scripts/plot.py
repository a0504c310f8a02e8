"""Matplotlib for the charts of READMEs, which a reader may see on white or on black: there is no
background, and letters and lines are gray."""

GREY = "#808890"


def pyplot():
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "ladder", "figure.facecolor": "none", "axes.facecolor": "none",
        "savefig.facecolor": "none", "text.color": GREY, "axes.labelcolor": GREY,
        "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt
    return plt


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
