"""The measured tables and the chart of chapter 05: three precisions, loss scaling, master weights."""

import array
import json
import math
import tempfile
from pathlib import Path

from measure import compare, run, short_text, table, take_turns, turns_text
from plot import GREY, pyplot, save

SHORT = "--model tiny --batch 12 --beta2 0.99 --clip 1"
TINY = f"{SHORT} --lr 1e-3"
LONG = f"{TINY} --steps 600 --schedule cosine --warmup 50"
ROUNDS = 6
PRECISIONS = ["fp32", "bf16", "fp16"]
CATEGORIES = ["Param", "Master", "Grad", "Optim", "Activation", "Workspace"]


def smooth(values, width=20):
    return [sum(values[max(0, i - width + 1):i + 1]) / min(width, i + 1)
            for i in range(len(values))]


def chart(runs):
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(9, 3.6))
    for name, one in runs.items():
        left.plot(smooth(one.loss), label=name, linewidth=1.2)
    left.set_xlabel("step")
    left.set_ylabel("training loss, mean of 20 steps")
    left.legend()
    for name, one in runs.items():
        if name != "fp32":
            right.plot(smooth([a - b for a, b in zip(one.loss, runs["fp32"].loss)]), label=name,
                       linewidth=1.2)
    right.axhline(0, color=GREY, linewidth=0.6)
    right.set_xlabel("step")
    right.set_ylabel("the same less that of fp32")
    right.legend()
    figure.tight_layout()
    save(figure, Path(__file__).resolve().parents[1] / "precision.svg")


def curves():
    runs = {p: run("05_mixed_precision", f"{LONG} --precision {p}") for p in PRECISIONS}
    chart(runs)
    fp32 = runs["fp32"]
    wanted = {p: ("05_mixed_precision", f"{TINY} --steps 60 --precision {p}") for p in PRECISIONS}
    times, noise = compare(take_turns(ROUNDS, wanted, short_text(12, 64)))
    rows = [[p, f"{r.report['final_loss']:.4f}", f"{r.report['val_loss']:.4f}",
             f"{max(abs(a - b) / b for a, b in zip(r.loss, fp32.loss)):.1%}",
             f"{times[p][0]:.1f}", f"{times[p][1]:.2f}"]
            for p, r in runs.items()]
    head = ["precision", "loss of the last batch", "validation loss",
            "largest deviation of a step's loss from fp32's", "ms a step", "to fp32"]
    text = [f"`{LONG} --precision ...`:", "![loss of three precisions](precision.svg)",
            table(head, rows),
            f"Times are of shorter runs, `{TINY} --steps 60`. "
            f"{turns_text('the precisions', ROUNDS, noise)}"]
    parameters = fp32.memory("Grad") / 4
    rows = [[p, *(r.both(c) for c in CATEGORIES),
             f"{sum(r.memory(c) for c in CATEGORIES[:4]) / parameters:.2f}"] for p, r in runs.items()]
    text += ["Peak bytes of the same runs, predicted and measured (equal where one number stands), "
             "and bytes a parameter of the first four together (padding counts as parameters):",
             table(["precision", *CATEGORIES, "bytes a parameter"], rows)]
    return "\n\n".join(text)


def without_scale():
    flags = ("--model tiny --layers 1 --heads 2 --channels 32 --batch 4096 --micro-batch 64 "
             "--lr 5e-3 --beta2 0.99 --clip 1 --steps 30")
    rows = []
    for name, more in [("fp32", ""), ("fp16, no loss scale", "--loss-scale 1 --fixed-loss-scale"),
                       ("fp16, loss scale", "")]:
        r = run("05_mixed_precision", f"{flags} --precision {name[:4]} {more}")
        rows.append([name, f"{r.report['final_loss']:.3f}", f"{r.report['val_loss']:.3f}"])
    return (f"A small model and a large batch, of 262,144 tokens, `{flags}`; without a loss scale "
            "means `--loss-scale 1 --fixed-loss-scale`:\n\n" +
            table(["precision", "loss of the last batch", "validation loss"], rows))


def scaling():
    rows = []
    flags = f"{TINY} --steps 200 --precision fp16 --loss-scale-window 10"
    for name, more in [("2^0, fixed", "--loss-scale 1 --fixed-loss-scale"),
                       ("2^-10, fixed", "--loss-scale 0.0009765625 --fixed-loss-scale"),
                       ("2^-10, dynamic", "--loss-scale 0.0009765625"),
                       ("2^24, dynamic", "--loss-scale 16777216"),
                       ("2^16, dynamic", "")]:
        r = run("05_mixed_precision", f"{flags} {more}")
        last = r.report["extra"]["loss_scale"]
        rows.append([name, last["skipped"], f"2^{math.log2(last['scale']):g}", f"{r.report['val_loss']:.3f}"])
    fp32 = run("05_mixed_precision", f"{TINY} --steps 200")
    rows.append(["FP32", "", "", f"{fp32.report['val_loss']:.3f}"])
    head = ["loss scale at step 0", "steps skipped", "scale at the end", "validation loss"]
    return f"A batch of 768 tokens, `{flags}`, and FP32 beside it:\n\n" + table(head, rows)


def bf16_weights(directory):
    """The weights of a checkpoint as BF16: {name: [16 bits, ...]}."""
    data = Path(directory, "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:begin])
    tensors.pop("__metadata__", None)
    weights = {}
    for name, tensor in tensors.items():
        words = array.array("I")
        first, last = tensor["data_offsets"]
        words.frombytes(data[begin + first:begin + last])
        weights[name] = [(w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words]  # to nearest even
    return weights


def unchanged(before, after):
    """The share of weights that are the same BF16 number in both checkpoints."""
    a, b = bf16_weights(before), bf16_weights(after)
    same = sum(x == y for name in a for x, y in zip(a[name], b[name]))
    return same / sum(map(len, a.values()))


def master():
    """A trained model goes on at small learning rates, with an FP32 master and without."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        half = f"{directory}/half"
        begun = run("05_mixed_precision", f"{LONG} --precision bf16 --save {half}")
        for lr in ["1e-5", "3e-6", "1e-6"]:
            row = [lr]
            for bits in [32, 16]:
                end = f"{directory}/{lr}-{bits}"
                r = run("05_mixed_precision",
                        f"{SHORT} --lr {lr} --precision bf16 --master {bits} --load {half} "
                        f"--steps 900 --save {end}")
                row += [f"{r.report['val_loss']:.4f}", f"{unchanged(half, end):.0%}"]
            rows.append(row)
    head = ["learning rate", "FP32 master, validation loss", "weights unchanged",
            "`--master 16`, validation loss", "weights unchanged"]
    return (f"The BF16 run of the first table, with a validation loss of "
            f"{begun.report['val_loss']:.4f}, trained 300 steps more at a constant, small "
            "learning rate, with an FP32 master and with weights rounded after each update "
            "(`--load ... --steps 900 --schedule constant --lr ... --master 32` or `16`). Beside "
            "the loss stands the share of weights that end as the BF16 number they began as:\n\n"
            + table(head, rows))


def measure():
    return "\n\n".join([curves(), without_scale(), scaling(), master()])
