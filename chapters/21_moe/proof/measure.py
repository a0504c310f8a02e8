"""The measured tables and the chart of chapter 21: loss, balance, dropping, bytes."""

import pathlib
import statistics

from measure import both, long_table, run, short_text, table
from plot import pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
CHAPTER = "21_moe"
TRAIN = "--batch 12 --steps 400 --lr 2e-3 --beta2 0.99 --schedule cosine --warmup 40 --clip 1"
DENSE, MOE = "--model llama-tiny", "--model moe-tiny"
RUNS = {
    "dense, as many FLOPs": DENSE,
    "8 experts, 2 a token": MOE,
    "8 experts, 2 a token, and balance loss": f"{MOE} --balance-loss 0.01",
    "8 experts, 2 a token, and bias": f"{MOE} --bias-rate 0.001",
    "16 experts of half the size, 4 a token, and bias":
        f"{MOE} --experts 16 --experts-per-token 4 --hidden 96 --bias-rate 0.001",
    "7 experts, 1 a token, 1 shared, and bias":
        f"{MOE} --experts 7 --experts-per-token 1 --shared-experts 1 --no-renormalize "
        "--bias-rate 0.001",
    "balance loss, --capacity 1.25": f"{MOE} --balance-loss 0.01 --capacity 1.25",
    "balance loss, --capacity 1": f"{MOE} --balance-loss 0.01 --capacity 1",
    "no balance, --capacity 1": f"{MOE} --capacity 1",
}
CHART = {"no balance": "8 experts, 2 a token", "balance loss 0.01": "8 experts, 2 a token, and balance loss",
         "bias, 0.001 a step": "8 experts, 2 a token, and bias"}
LONGER = TRAIN.replace("--steps 400", "--steps 1600")
SMOOTH = 20  # steps


def smooth(values):
    return [statistics.mean(values[max(0, i - SMOOTH):i + 1]) for i in range(len(values))]


def chart(runs):
    figure, axes = pyplot().subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for label, name in CHART.items():
        steps = runs[name].report["extra"]["experts"]["steps"]
        axes[0].plot(smooth(steps["max_violation"]), label=label)
        axes[1].plot(smooth(steps["least_load"]), label=label)
    axes[0].set(xlabel="step", ylabel="MaxVio", ylim=(0, None))
    axes[1].set(xlabel="step", ylabel="least load / mean", ylim=(0, 1))
    figure.legend(*axes[0].get_legend_handles_labels(), ncol=3, loc="lower center")
    figure.get_layout_engine().set(rect=(0, 0.09, 1, 0.91))  # above the legend
    save(figure, HERE / "balance.svg")


def last(steps, name):
    return statistics.mean(steps[name][-100:])


def losses():
    runs = {name: run(CHAPTER, f"{TRAIN} {flags}") for name, flags in RUNS.items()}
    chart(runs)
    dense = runs["dense, as many FLOPs"].report["val_loss"]
    rows = []
    for name, flags in RUNS.items():
        report = runs[name].report
        block, experts = report["extra"]["block"], report["extra"].get("experts")
        of = lambda what: f"{last(experts['steps'], what):.2f}" if experts else ""
        weights = block["weights"]["measured"]
        rows.append([name, f"`{flags}`", f"{weights:,}",
                     f"{experts['weights_of_a_token'] if experts else weights:,}",
                     f"{report['val_loss']:.3f}", f"{report['val_loss'] - dense:+.3f}",
                     of("max_violation"), of("least_load"),
                     f"{100 * last(experts['steps'], 'dropped'):.1f}%" if experts else ""])
    head = ["model", "flags", "weights", "of a token", "validation loss", "against dense", "MaxVio", "least load", "dropped"]
    return "\n\n".join([
        f"`{TRAIN}`, one seed; MaxVio, the least load over the mean, and dropped choices are means "
        "over blocks and the last 100 steps ([all rows](../../docs/results/chapter_21.md)):",
        long_table("Loss and balance", head, rows, shown=[0, 2, 7]),
        "![MaxVio and least load, step by step, without balance, with the loss and with the bias]"
        "(balance.svg)"])


def longer():
    rows = []
    for name in ("dense, as many FLOPs", "8 experts, 2 a token, and balance loss", "7 experts, 1 a token, 1 shared, and bias"):
        r = run(CHAPTER, f"{LONGER} {RUNS[name]}")
        before = lambda step: f"{statistics.mean(r.loss[step - SMOOTH:step]):.3f}"
        rows.append([name, *map(before, (400, 800, 1600)), f"{r.report['val_loss']:.3f}"])
    head = ["model", f"loss of the {SMOOTH} steps before 400", "before 800", "before 1600",
            "validation loss"]
    return f"`{LONGER}`, the same models four times as long:\n\n" + table(head, rows)


def sizes():
    text = short_text(12, 64)
    rows = []
    for flags in (DENSE, MOE, f"{MOE} --experts 16", f"{MOE} --experts-per-token 4",
                  f"{MOE} --shared-experts 1", f"{MOE} --precision bf16",
                  f"{MOE} --recompute selective"):
        r = run(CHAPTER, f"--batch 12 --steps 1 {flags}", text)
        block = r.report["extra"]["block"]
        pair = lambda what, per=1: both(*(block[what][w] // per for w in ("predicted", "measured")))
        rows.append([f"`{flags}`", pair("weights"), r.both("Param"), r.both("Activation"),
                     r.both("Workspace"), pair("flops", 12 * 64)])
    head = ["flags", "weights", "Param", "Activation", "Workspace", "FLOPs a token"]
    return ("`--batch 12 --steps 1`, predicted and measured (equal where one number stands), bytes:"
            "\n\n" + long_table("Sizes", head, rows, shown=[0, 1, 3]))


def measure():
    return "\n\n".join([losses(), longer(), sizes()])
