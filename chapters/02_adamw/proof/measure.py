"""The measured tables of chapter 02: three optimizers, and where the decay goes."""

import math

from measure import compare, run, short_text, table, take_turns, turns_text

TINY = "--model tiny --batch 12"
# name, flags, formula of the bytes of Optim, three learning rates
OPTIMIZERS = [
    ("sgd", "--optimizer sgd", "0", ["0.03", "0.1", "0.3"]),
    ("sgd, momentum 0.9", "--optimizer sgd --momentum 0.9", "$4P$", ["0.01", "0.03", "0.1"]),
    ("adam", "--optimizer adam", "$8P$", ["1e-3", "3e-3", "1e-2"]),
    ("adamw", "--optimizer adamw", "$8P$", ["3e-4", "1e-3", "3e-3"]),
]
DECAYS = ["0", "0.001", "0.01", "0.1", "1"]
ROUNDS = 6


def costs():
    wanted = {name: ("02_adamw", f"{TINY} --steps 60 {more}") for name, more, *_ in OPTIMIZERS}
    runs = take_turns(ROUNDS, wanted, short_text(12, 64))
    times, noise = compare(runs)
    rows = []
    for name, flags, formula, _ in OPTIMIZERS:
        r, (ms, ratio) = runs[name][0], times[name]
        optim, P = r.memory("Optim"), r.memory("Param") / 4
        rows.append([name, formula, f"{r.memory('Optim', 'predicted'):,}", f"{optim:,}",
                     f"{optim / P:.3f}", f"{ms:.1f}", f"{ratio:.2f}"])
    head = ["optimizer", "Optim", "predicted, bytes", "measured, bytes", "per parameter",
            "ms a step", "to sgd"]
    return (f"State and time, `{TINY} --steps 60`:\n\n{table(head, rows)}\n\n"
            f"{turns_text('the optimizers', ROUNDS, noise)}")


def rates():
    rows = []
    for name, flags, _, tried in OPTIMIZERS:
        losses = [run("02_adamw", f"{TINY} --steps 500 {flags} --lr {lr}").report["val_loss"]
                  for lr in tried]
        best = min(loss for loss in losses if loss is not None)
        cells = [f"{lr}: " + (f"**{loss:.3f}**" if loss == best else f"{loss or math.nan:.3f}")
                 for lr, loss in zip(tried, losses)]
        more = " ".join(flags.split()[2:])
        rows.append([name, f"`{more}`" if more else "", *cells])
    return (f"Validation loss of `{TINY} --steps 500` at three learning rates each, the best in bold:\n\n" +
            table(["optimizer", "flags", "low", "middle", "high"], rows))


def decay():
    rows = []
    for value in DECAYS:
        losses = [run("02_adamw", f"{TINY} --steps 500 --optimizer {o} --weight-decay {value}")
                  .report["val_loss"] for o in ("adam", "adamw")]
        rows.append([value, *(f"{loss:.3f}" for loss in losses)])
    return table(["`--weight-decay`", "adam (L2)", "adamw"], rows)


def measure():
    return "\n\n".join([
        costs(),
        rates(),
        "Validation loss after 500 steps at a learning rate of 1e-3, by strength and place of "
        "the decay:",
        decay(),
    ])
