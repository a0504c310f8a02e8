"""The measured tables and the chart of chapter 03: schedules and a batch-size ramp."""

import pathlib

from measure import run, table

HERE = pathlib.Path(__file__).resolve().parent
TINY = "--model tiny --batch 12 --steps 600 --lr 2e-3"
SCHEDULES = {
    "constant": "--schedule constant",
    "constant, warmup": "--schedule constant --warmup 60",
    "linear": "--schedule linear --warmup 60 --min-lr 0",
    "cosine": "--schedule cosine --warmup 60 --min-lr 0",
    "wsd, linear": "--schedule wsd --warmup 60 --min-lr 0",
    "wsd, cosine": "--schedule wsd --warmup 60 --min-lr 0 --wsd-decay cosine",
}
RAMP = "--schedule cosine --warmup-tokens 46080"


def chart(runs):
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ladder"
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for name, r in runs.items():
        axes.plot(r.lr, label=name, linewidth=1.6)
    axes.set(xlabel="step", ylabel="learning rate", xlim=(0, 600), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.savefig(HERE / "schedules.svg", metadata={"Date": None})


def measure():
    runs = {name: run("03_schedules", f"{TINY} {flags}") for name, flags in SCHEDULES.items()}
    chart(runs)
    rows = [[name, f"`{SCHEDULES[name][11:]}`", f"{r.lr[0]:.2e}", f"{max(r.lr):.2e}", f"{r.lr[-1]:.2e}",
             f"{r.report['final_loss']:.3f}", f"{r.report['val_loss']:.3f}"]
            for name, r in runs.items()]

    ramps = {"12 throughout": RAMP, "4 to step 200, 8 to 400, then 12":
             f"{RAMP} --batch-ramp 4:200,8:400"}
    ramp_rows = []
    for name, flags in ramps.items():
        r = run("03_schedules", f"{TINY} {flags}")
        tokens = 64 * (12 * 600 if "ramp" not in flags else 4 * 200 + 8 * 200 + 12 * 200)
        warmup = r.lr.index(max(r.lr))
        ramp_rows.append([name, f"{tokens:,}", warmup + 1, f"{r.report['val_loss']:.3f}"])
    return "\n\n".join([
        f"Learning rates of real runs, from their traces (`{TINY}`):",
        "![learning rate against step for six schedules](schedules.svg)",
        table(["schedule", "`--schedule`", "lr of step 0", "largest", "last",
               "loss of the last batch", "validation loss"],
              rows),
        f"A ramp of batch sizes (`{RAMP}`): warmup is counted in tokens, so it takes more steps "
        "while batches are small:",
        table(["batch", "tokens in 600 steps", "steps to the full rate", "validation loss"],
              ramp_rows),
    ])
