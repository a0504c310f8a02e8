"""The measured tables and the chart of chapter 19: loss, weights, bytes and operations of each part."""

import pathlib
import statistics

from measure import both, long_table, run, short_text
from plot import GREY, pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
CHAPTER = "19_llama"
TINY = "--model tiny --batch 12 --steps 600 --lr 2e-3 --beta2 0.99 --schedule cosine --warmup 60 --clip 1"
SEEDS = [1, 2]
ALL = "--norm rms --mlp swiglu --position rope --kv-heads 2 --no-bias"
# What a part saves is given to the MLP, and the other way round: as many weights in the matrices.
CHANGES = {
    "GPT-2": "",
    "RMSNorm": "--norm rms",
    "rotary positions": "--position rope",
    "SwiGLU": "--mlp swiglu --hidden 341",
    "grouped heads": "--kv-heads 2 --hidden 576",
    "no biases": "--no-bias",
    "all": ALL,
}
SIZES = {"GPT-2": "", "RMSNorm": "--norm rms", "rotary positions": "--position rope",
         "SwiGLU": "--mlp swiglu", "grouped heads": "--kv-heads 2", "no biases": "--no-bias", "all": ALL}
SMOOTH = 25  # steps


def mean_before(finished, step):
    return statistics.mean(finished.loss[step - SMOOTH:step])


def against(runs, name):
    """By how much the loss of each step lies above GPT-2's on the same batch, mean over seeds."""
    pairs = [zip(ours.loss, gpt2.loss) for ours, gpt2 in zip(runs[name], runs["GPT-2"])]
    return [statistics.mean(a - b for a, b in step) for step in zip(*pairs)]


def chart(runs):
    figure, axes = pyplot().subplots(figsize=(8, 3.8), layout="constrained")
    for name in list(CHANGES)[1:]:
        curve = against(runs, name)
        steps = range(SMOOTH, len(curve) + 1)
        axes.plot(steps, [statistics.mean(curve[s - SMOOTH:s]) for s in steps], label=name,
                  linewidth=2.4 if name == "all" else 1.4)
    axes.axhline(0, color=GREY, linewidth=1)
    axes.set(xlabel="step", ylabel="loss above GPT-2's", xlim=(0, 600))
    axes.legend(ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    save(figure, HERE / "loss.svg")


def losses():
    runs = {name: [run(CHAPTER, f"{TINY} --seed {seed} {flags}") for seed in SEEDS]
            for name, flags in CHANGES.items()}
    chart(runs)
    of = lambda name: [r.report["val_loss"] for r in runs[name]]
    rows = []
    for name, flags in CHANGES.items():
        apart = [a - b for a, b in zip(of(name), of("GPT-2"))]
        rows.append([name, f"`{flags}`" if flags else "",
                     f"{runs[name][0].report['extra']['block']['weights']['measured']:,}",
                     *(f"{statistics.mean(mean_before(r, s) for r in runs[name]):.3f}"
                       for s in (100, 300)),
                     f"{statistics.mean(of(name)):.3f}",
                     " ".join(f"{d:+.3f}" for d in apart) if flags else ""])
    head = ["block", "flags", "weights", f"loss of the {SMOOTH} steps before 100", "before 300",
            "validation loss", "less GPT-2's, for each seed"]
    return "\n\n".join([
        f"`{TINY}`, mean over seeds {', '.join(map(str, SEEDS))}; with a seed all blocks see the same batches "
        "([all rows](../../docs/results/chapter_19.md)):",
        long_table("Loss", head, rows, shown=[0, 2, 6]),
        "![loss above that of GPT-2's block, step by step, for each change and for all](loss.svg)"])


def sizes():
    flags, rows = "--model tiny --batch 12 --steps 1", []
    text = short_text(12, 64)
    for name, change in SIZES.items():
        r = run(CHAPTER, f"{flags} {change}", text)
        block = r.report["extra"]["block"]
        pair = lambda what, per=1: both(*(block[what][w] // per for w in ("predicted", "measured")))
        rows.append([name, f"`{change}`" if change else "", pair("weights"), r.both("Param"),
                     r.both("Activation"), r.both("Workspace"), pair("keys_and_values"),
                     pair("flops", 12 * 64)])
    head = ["block", "flags", "weights", "Param", "Activation", "Workspace", "keys and values, numbers a token", "FLOPs a token"]
    return (f"`{flags}`, predicted and measured (equal where one number stands), bytes in FP32:\n\n"
            + long_table("Sizes", head, rows, shown=[0, 4, 6]))


def measure():
    return "\n\n".join([losses(), sizes()])
