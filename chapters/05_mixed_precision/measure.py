"""The measured tables and the chart of chapter 05: four precisions, loss scaling, master weights."""

from pathlib import Path

from measure import run, table

TINY = "--model tiny --batch 12 --lr 1e-3 --beta2 0.99 --clip 1"
LONG = f"{TINY} --steps 600 --schedule cosine --warmup 50"
PRECISIONS = ["fp32", "bf16", "fp16", "fp8"]
CATEGORIES = ["Param", "Master", "Grad", "Optim", "Activation"]


def smooth(values, width=20):
    return [sum(values[max(0, i - width + 1):i + 1]) / min(width, i + 1)
            for i in range(len(values))]


def chart(runs):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ladder"
    import matplotlib.pyplot as plt
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    for name, one in runs.items():
        left.plot(smooth(one.loss), label=name, linewidth=1.2)
    left.set_xlabel("step")
    left.set_ylabel("training loss, mean of 20 steps")
    left.legend(frameon=False)
    for name, one in runs.items():
        if name != "fp32":
            right.plot(smooth([a - b for a, b in zip(one.loss, runs["fp32"].loss)]), label=name,
                       linewidth=1.2)
    right.axhline(0, color="black", linewidth=0.6)
    right.set_xlabel("step")
    right.set_ylabel("the same less that of fp32")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "precision.svg", metadata={"Date": None})


def curves():
    runs = {p: run("05_mixed_precision", f"{LONG} --precision {p}") for p in PRECISIONS}
    chart(runs)
    fp32 = runs["fp32"]
    rows = [[p, f"{r.report['final_loss']:.4f}", f"{r.report['val_loss']:.4f}",
             f"{max(abs(a - b) / b for a, b in zip(r.loss, fp32.loss)):.1%}",
             f"{r.report['step_ms_median']:.0f}"] for p, r in runs.items()]
    head = ["precision", "training loss", "validation loss", "largest deviation of a step's loss",
            "ms a step"]
    text = [f"`{LONG} --precision ...`:", "![loss of four precisions](precision.svg)",
            table(head, rows)]
    parameters = fp32.memory("Grad") / 4
    rows = [[p, *(f"{r.memory(c, 'predicted'):,} / {r.memory(c):,}" for c in CATEGORIES),
             f"{sum(r.memory(c) for c in CATEGORIES[:4]) / parameters:.2f}"]
            for p, r in runs.items()]
    text += ["Peak bytes of the same runs, predicted / measured, and bytes a parameter of the "
             "first four together (padding counts as parameters):",
             table(["precision", *CATEGORIES, "bytes a parameter"], rows)]
    return "\n\n".join(text)


def scaling():
    rows = []
    flags = f"{TINY} --steps 200 --precision fp16 --loss-scale-window 10"
    for name, more in [("2^-10, fixed", "--loss-scale 0.0009765625 --fixed-loss-scale"),
                       ("2^-10, dynamic", "--loss-scale 0.0009765625"),
                       ("2^24, dynamic", "--loss-scale 16777216"),
                       ("2^16, dynamic", "")]:
        r = run("05_mixed_precision", f"{flags} {more}")
        last = r.report["extra"]["loss_scale"]
        rows.append([name, last["skipped"], f"{last['scale']:g}", f"{r.report['val_loss']:.3f}"])
    head = ["loss scale at step 0", "steps skipped", "scale at the end", "validation loss"]
    return (f"FP16, `{flags}`. A batch of 768 tokens has large gradients; a scale of 2^-10 makes "
            "them as small as those of a batch of 786,432 tokens:\n\n" + table(head, rows))


def master():
    rows = []
    flags = "--model tiny --batch 12 --beta2 0.99 --steps 300 --precision bf16"
    for lr in ["1e-3", "1e-4", "1e-5"]:
        with_master = run("05_mixed_precision", f"{flags} --lr {lr}")
        without = run("05_mixed_precision", f"{flags} --lr {lr} --master 16")
        rows.append([lr, *(f"{r.report['val_loss']:.4f}" for r in (with_master, without))])
    head = ["learning rate", "FP32 master, validation loss", "weights rounded after each update"]
    return (f"`{flags}` with and without an FP32 master (`--master 16`); before training the loss "
            "is 5.55:\n\n" + table(head, rows))


def measure():
    return "\n\n".join([curves(), scaling(), master()])
