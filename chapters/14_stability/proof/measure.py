"""The measured tables of chapter 14: adaptive clipping, spike guard."""

from measure import run, table

CHAPTER = "14_stability"


def number(value):
    """A loss of the report, where null stands for NaN."""
    return float("nan") if value is None else value


def clipping():
    rows = []
    flags = "--model tiny --batch 12 --steps 300 --optimizer sgd --momentum 0.9 --lr 0.5"
    for clip in ["", "--clip 1", "--agc 0.02", "--agc 0.02 --clip 1"]:
        r = run(CHAPTER, f"{flags} {clip}")
        rows.append([f"`{clip}`" if clip else "none", f"{max(r.norm):.3g}",
                     f"{number(r.report['final_loss']):.3f}",
                     f"{number(r.report['val_loss']):.3f}"])
    head = ["clipping", "largest norm before clipping", "loss of the last batch", "validation loss"]
    return f"`{flags}`: a learning rate that SGD bears only with clipping:\n\n" + table(head, rows)


def spike():
    rows = []
    flags = "--model tiny --lr 1e-3 --beta2 0.99 --batch 12 --steps 300 --warmup 50"
    for more in ["", "--bad-batch 200", "--bad-batch 200 --spike-guard 6"]:
        r = run(CHAPTER, f"{flags} {more}")
        rows.append([f"`{more}`" if more else "clean",
                     *(f"{r.loss[s]:.3f}" for s in (199, 200, 201, 205)), f"{r.norm[200]:.2f}",
                     f"{r.report['val_loss']:.3f}", len(r.report["skipped"])])
    head = ["", "loss of step 199", "200", "201", "205", "norm of step 200", "validation loss",
            "steps skipped"]
    return f"`{flags}`; at step 200 comes a batch of random bytes:\n\n" + table(head, rows)


def memory():
    rows = []
    flags = "--model tiny --batch 12 --steps 1"
    for more in ["", "--agc 0.02", "--spike-guard 6"]:
        r = run(CHAPTER, f"{flags} {more}")
        rows.append([f"`{more}`" if more else "all off",
                     *(f"{r.memory('Workspace', which):,}" for which in ("predicted", "measured"))])
    return f"`{flags}`, bytes of Workspace:\n\n" + table(["", "predicted", "measured"], rows)


def measure():
    return "\n\n".join([clipping(), spike(), memory()])
