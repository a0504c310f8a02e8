"""The measured tables of chapter 04: accumulation, clipping."""

from measure import fastest, fastest_text, run, short_text, table, take_turns

TINY = "--model tiny --lr 1e-3 --beta2 0.99"
ROUNDS = 6


def accumulation():
    flags = f"{TINY} --batch 16 --steps 40 --clip 1"
    cuts = [(16, "tree"), (8, "tree"), (4, "tree"), (2, "tree"), (1, "tree"), (1, "running")]
    runs = take_turns(ROUNDS, {f"{micro} x {16 // micro}, {mode}":
                               ("04_clipping", f"{flags} --micro-batch {micro} --accumulate {mode}")
                               for micro, mode in cuts}, short_text(16, 64))
    times, noise = fastest(runs)
    rows = []
    for cut, rounds in runs.items():
        r, ratio = rounds[0], round(times[cut], 1) / round(min(times.values()), 1)
        rows.append([cut, r.both("Activation"), r.both("Workspace"), f"{times[cut]:.1f}", f"{ratio:.2f}", f"`{r.hash[-1]}`"])
    head = ["MBS x GA", "Activation", "Workspace", "ms a step", "to the fastest",
            "hash of the weights after 40 steps"]
    return (f"`{flags}`, cut in all legal ways. Where one number of bytes stands, predicted and "
            f"measured are equal:\n\n{table(head, rows)}\n\n"
            f"The cuts take turns in {ROUNDS} rounds, and of each the fastest round counts. {fastest_text('cut', noise)}")


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


def measure():
    return "\n\n".join([accumulation(), clipping()])
