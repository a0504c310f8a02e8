"""The measured tables of chapter 02: six optimizers, and where the decay goes."""

from measure import run, table

TINY = "--model tiny --batch 12"
# name, flags, formula of the bytes of Optim
OPTIMIZERS = [
    ("sgd", "--optimizer sgd --lr 0.1", "0"),
    ("sgd, momentum 0.9", "--optimizer sgd --lr 0.1 --momentum 0.9", "$4P$"),
    ("adam", "--optimizer adam --lr 1e-3", "$8P$"),
    ("adamw", "--optimizer adamw --lr 1e-3", "$8P$"),
    ("lion", "--optimizer lion --lr 2e-4 --beta2 0.99 --weight-decay 0.5", "$4P$"),
    ("adafactor", "--optimizer adafactor --lr 1e-3", "$4\\sum(R+N)$"),
    ("adamw8bit", "--optimizer adamw8bit --lr 1e-3", "$(2+8/64)P$"),
]
DECAYS = ["0", "0.001", "0.01", "0.1", "1"]


def optimizers():
    rows = []
    for name, flags, formula in OPTIMIZERS:
        r = run("02_adamw", f"{TINY} --steps 500 {flags}")
        optim, P = r.memory("Optim"), r.memory("Param") / 4
        rows.append([name, f"`{flags.split(maxsplit=2)[2]}`", formula, f"{r.memory('Optim', 'predicted'):,}", f"{optim:,}",
                     f"{optim / P:.3f}", f"{r.report['final_loss']:.3f}",
                     f"{r.report['val_loss']:.3f}", f"{r.report['step_ms_median']:.1f}"])
    return table(["optimizer", "flags", "Optim", "predicted, bytes", "measured, bytes", "per parameter",
                  "loss of the last batch", "validation loss", "ms a step"], rows)


def decay():
    rows = []
    for value in DECAYS:
        losses = [run("02_adamw", f"{TINY} --steps 500 --optimizer {o} --weight-decay {value}")
                  .report["val_loss"] for o in ("adam", "adamw")]
        rows.append([value, *(f"{loss:.3f}" for loss in losses)])
    return table(["`--weight-decay`", "adam (L2)", "adamw"], rows)


def measure():
    return "\n\n".join([
        f"500 steps of `{TINY}`, each at a learning rate that suits it:",
        optimizers(),
        "Validation loss after 500 steps at a learning rate of 1e-3, by strength and place of "
        "the decay:",
        decay(),
    ])
