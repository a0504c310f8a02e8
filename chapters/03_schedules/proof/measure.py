"""The measured tables and the chart of chapter 03: schedules."""

import pathlib

from measure import run, table
from plot import pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
TINY = "--model tiny --batch 12 --steps 600 --lr 2e-3"
SCHEDULES = {
    "constant": "--schedule constant",
    "constant, warmup": "--schedule constant --warmup 60",
    "linear": "--schedule linear --warmup 60 --min-lr 0",
    "cosine": "--schedule cosine --warmup 60 --min-lr 0",
    "wsd, linear": "--schedule wsd --warmup 60 --min-lr 0",
    "wsd, cosine": "--schedule wsd --warmup 60 --min-lr 0 --wsd-decay cosine",
}


def chart(runs):
    figure, axes = pyplot().subplots(figsize=(8, 3.6), layout="constrained")
    for name, r in runs.items():
        axes.plot(r.lr, label=name, linewidth=1.6)
    axes.set(xlabel="step", ylabel="learning rate", xlim=(0, 600), ylim=(0, None))
    axes.legend(ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    save(figure, HERE / "schedules.svg")


def measure():
    runs = {name: run("03_schedules", f"{TINY} {flags}") for name, flags in SCHEDULES.items()}
    chart(runs)
    rows = [[name, f"`{SCHEDULES[name][11:]}`", f"{r.lr[0]:.2e}", f"{r.lr[-1]:.2e}",
             f"{r.report['final_loss']:.3f}", f"{r.report['val_loss']:.3f}"]
            for name, r in runs.items()]
    return "\n\n".join([
        f"Learning rates of real runs, from their traces (`{TINY}`):",
        "![learning rate against step for six schedules](schedules.svg)",
        table(["schedule", "`--schedule`", "lr of step 0", "last lr",
               "loss of the last batch", "validation loss"],
              rows),
    ])
