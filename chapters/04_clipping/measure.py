"""The measured tables of chapter 04: accumulation, clipping, noise scale."""

from measure import run, short_text, step_ms, table, take_turns

TINY = "--model tiny --lr 1e-3 --beta2 0.99"
KEEP = 0.98  # of noise_scale.h
ROUNDS = 6


def fastest(runs):
    """Of each name: milliseconds of a step in its fastest round, as whatever else the machine does
    only makes a round slower, and most of all one of many small pieces of work. And the noise: by
    how much the fastest odd round differs from the fastest even one at most."""
    ms = step_ms(runs)
    noise = max(abs(min(m[::2]) / min(m[1::2]) - 1) for m in ms.values())
    return {name: min(m) for name, m in ms.items()}, noise


def accumulation():
    flags = f"{TINY} --batch 16 --steps 40 --clip 1"
    cuts = [(16, "tree"), (8, "tree"), (4, "tree"), (2, "tree"), (1, "tree"), (1, "running")]
    runs = take_turns(ROUNDS, "04_clipping",
                      {f"{micro} x {16 // micro}, {mode}":
                       f"{flags} --micro-batch {micro} --accumulate {mode}"
                       for micro, mode in cuts}, short_text(16, 64))
    times, noise = fastest(runs)
    rows = []
    for cut, rounds in runs.items():
        r, ratio = rounds[0], times[cut] / min(times.values())
        both = [f"{r.memory(c, 'predicted'):,} / {r.memory(c):,}" for c in ("Activation",
                                                                             "Workspace")]
        rows.append([cut, *both, f"{times[cut]:.1f}", f"{ratio:.2f}", f"`{r.hash[-1]}`"])
    head = ["MBS x GA", "Activation, predicted / measured", "Workspace, predicted / measured",
            "ms a step", "to the fastest", "hash of the weights after 40 steps"]
    return (f"`{flags}`, cut in all legal ways:\n\n{table(head, rows)}\n\n"
            f"The cuts take turns in {ROUNDS} rounds, and of each the fastest round counts. The "
            "fastest of the odd rounds differs from that of the even ones by up to "
            f"{noise:.0%}.")


def clipping():
    rows = []
    flags = f"--model tiny --batch 12 --steps 300 --optimizer sgd --momentum 0.9 --lr 0.5"
    for clip in ["", "--clip 1", "--clip 0.25"]:
        r = run("04_clipping", f"{flags} {clip}")
        limit = float(clip.split()[1]) if clip else None
        rows.append([f"`{clip}`" if clip else "none", f"{max(r.norm):.3g}",
                     f"{sum(n > limit for n in r.norm) / len(r.norm):.0%}" if limit else "",
                     f"{r.report['final_loss'] or float('nan'):.3f}",
                     f"{r.report['val_loss'] or float('nan'):.3f}"])
    head = ["clipping", "largest norm before clipping", "steps clipped", "loss of the last batch",
            "validation loss"]
    return f"`{flags}`: a learning rate that SGD bears only with clipping:\n\n" + table(head, rows)


def noise():
    """A report's averages fade by KEEP a step and never forget a run's first steps, whose gradients
    are the longest. So each row is the average over the steps since the row before: of both sums,
    what was there is taken off."""
    rows = []
    flags = f"{TINY} --batch 32 --micro-batch 4 --clip 1 --schedule constant --noise-scale"
    begin, before = 0, {"signal": 0, "noise": 0}
    for steps in [50, 100, 200, 400]:
        scale = run("04_clipping", f"{flags} --steps {steps}").report["extra"]["noise_scale"]
        left = KEEP**(steps - begin)
        # An average is a sum over its weights, and those of n steps add up to 1 - KEEP^n.
        sums = {name: scale[name] * (1 - KEEP**steps) for name in before}
        G, S = ((sums[name] - left * before[name]) / (1 - left) for name in before)
        rows.append([f"{begin} to {steps - 1}", f"{G:.4f}", f"{S:.1f}", f"{S / G:.1f}",
                     f"{64 * S / G:,.0f}", f"{scale['sequences']:.1f}"])
        begin, before = steps, sums
    head = ["steps", "$\\|G\\|^2$", "$S$", "noise scale, sequences", "in tokens",
            "in the report after them"]
    return (f"`{flags}`, averages over the steps of each row, the last ones weighing most; and the "
            "noise scale that `--report` has at their end:\n\n" + table(head, rows))


def measure():
    return "\n\n".join([accumulation(), clipping(), noise()])
