"""The measured tables of chapter 04: accumulation, clipping, noise scale, spike guard."""

from measure import run, table

TINY = "--model tiny --lr 1e-3 --beta2 0.99"


def accumulation():
    rows = []
    flags = f"{TINY} --batch 16 --steps 40 --clip 1"
    for micro, mode in [(16, "tree"), (8, "tree"), (4, "tree"), (2, "tree"), (1, "tree"),
                        (1, "running")]:
        r = run("04_clipping", f"{flags} --micro-batch {micro} --accumulate {mode}")
        both = [f"{r.memory(c, 'predicted'):,} / {r.memory(c):,}" for c in ("Activation",
                                                                             "Workspace")]
        rows.append([f"{micro} x {16 // micro}, {mode}", *both,
                     f"{r.report['step_ms_median']:.0f}", f"`{r.hash[-1]}`"])
    head = ["MBS x GA", "Activation, predicted / measured", "Workspace, predicted / measured",
            "ms a step", "hash of the weights after 40 steps"]
    return f"`{flags}`, cut in all legal ways:\n\n" + table(head, rows)


def clipping():
    rows = []
    flags = f"--model tiny --batch 12 --steps 300 --optimizer sgd --momentum 0.9 --lr 0.5"
    for clip in ["", "--clip 1", "--clip 0.25", "--agc 0.02"]:
        r = run("04_clipping", f"{flags} {clip}")
        rows.append([f"`{clip}`" if clip else "none", f"{max(r.norm):.3g}",
                     f"{r.report['final_loss'] or float('nan'):.3f}",
                     f"{r.report['val_loss'] or float('nan'):.3f}"])
    head = ["clipping", "largest norm before clipping", "loss of the last batch",
            "validation loss"]
    return f"`{flags}`: a learning rate that SGD bears only with clipping:\n\n" + table(head, rows)


def noise():
    rows = []
    flags = f"{TINY} --batch 32 --micro-batch 4 --clip 1 --schedule constant --noise-scale"
    for steps in [50, 100, 200, 400]:
        scale = run("04_clipping", f"{flags} --steps {steps}").report["extra"]["noise_scale"]
        rows.append([steps, f"{scale['signal']:.4f}", f"{scale['noise']:.1f}",
                     f"{scale['sequences']:.1f}", f"{64 * scale['sequences']:,.0f}"])
    head = ["after steps", "$\\|G\\|^2$", "$S$", "noise scale, sequences", "in tokens"]
    return f"`{flags}`, averages of about the last 50 steps:\n\n" + table(head, rows)


def spike():
    rows = []
    flags = f"{TINY} --batch 12 --steps 300 --warmup 50"
    for more in ["", "--bad-batch 200", "--bad-batch 200 --spike-guard 6"]:
        r = run("04_clipping", f"{flags} {more}")
        rows.append([f"`{more}`" if more else "clean", *(f"{r.loss[s]:.3f}" for s in (199, 200, 201, 205)),
                     f"{r.norm[200]:.2f}", f"{r.report['val_loss']:.3f}",
                     r.output.count("skipped")])
    head = ["", "loss of step 199", "200", "201", "205", "norm of step 200", "validation loss",
            "steps skipped"]
    return f"`{flags}`; at step 200 comes a batch of random bytes:\n\n" + table(head, rows)


def measure():
    return "\n\n".join([accumulation(), clipping(), noise(), spike()])
