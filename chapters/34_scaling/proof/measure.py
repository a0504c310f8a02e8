"""The measured tables and pictures of chapter 34, from the runs that study.py makes or has kept."""

import sys
from pathlib import Path

from measure import long_table, memory_table, run, table
from plot import GREY, pyplot, save

HERE = Path(__file__).resolve().parents[1]


sys.path.append(str(HERE))
import study  # noqa: E402


def memory():
    flags = "--model tiny --channels 256 --heads 8 --mup 64,2 --batch 12 --micro-batch 4 --steps 1"
    return f"`{flags}`:\n\n" + memory_table(run("34_scaling", flags), {
        "Param": "$4P$", "Optim": "$8P$", "Workspace": "that of chapter 04, and $2 \\cdot 8 \\cdot 12$ for two more norms"})


def coordinates():
    found = study.coordinates()
    figure, panels = pyplot().subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    for panel, axis, what in zip(panels, ("width", "depth"), ("size of the logits", "size of the last block's output")):
        for (rule, sizes), style in zip(found.items(), ("o-", "s--", "^:")):
            panel.plot(study.WIDTHS if axis == "width" else study.DEPTHS, sizes[axis == "depth"], style, label=rule)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel=what, ylim=(0.05, 2.5))
        panel.legend(fontsize=8)
    save(figure, HERE / "coordinates.svg")
    rows = [[rule, *(f"{x:.3f}" for x in wide), *(f"{x:.3f}" for x in deep)]
            for rule, (wide, deep) in found.items()]
    head = ["", *(f"width {w}" for w in study.WIDTHS), *(f"depth {d}" for d in study.DEPTHS)]
    width, depth = study.BASE
    return (f"`study.py coordinates`, after four steps at rate 0.008: the mean size of the logits at {depth} layers, "
            f"and of the last block's output at {width} channels:\n\n" + table(head, rows))


def sizes_of(axis):
    return study.WIDTHS if axis == "width" else study.DEPTHS


def transfer():
    found = study.transfer()
    for axis in ("width", "depth"):
        sizes = sizes_of(axis)
        rules = ("SP", "CompleteP")
        figure, panels = pyplot().subplots(1, len(rules), figsize=(4.2 * len(rules), 3.4), sharey=True,
                                           layout="constrained")
        for panel, rule in zip(panels, rules):
            for size, row in zip(sizes, found[rule, axis]):
                line, = panel.plot(study.RATES, row, marker=".", label=f"{axis} {size}")
                panel.plot(study.RATES[row.index(min(row))], min(row), "o", color=line.get_color())
            panel.set(xscale="log", xlabel="--lr", title=rule, ylim=(2.3, 2.8))
            panel.grid(color=GREY, linewidth=0.3)
        panels[0].set_ylabel("validation loss")
        panels[0].legend(fontsize=8)
        save(figure, HERE / f"{axis}.svg")
    whole, rows = [], []
    for (rule, axis), losses in found.items():
        best = [row.index(min(row)) for row in losses]
        for size, row in zip(sizes_of(axis), losses):
            whole.append([rule, f"{axis} {size}", *(f"{loss:.4f}" for loss in row)])
        rows.append([f"{rule}, {axis}", ", ".join(f"$2^{{{at - study.SLOWEST}}}$" for at in best),
                     ", ".join(f"{min(row):.3f}" for row in losses), f"{losses[-1][best[0]] - min(losses[-1]):.3f}"])
    long_table("Rates", ["", "", *(f"rate {rate:.4f}" for rate in study.RATES)], whole, shown=[])
    head = ["", "best rate of each size", "their losses", "lost by the largest with the best rate of the smallest"]
    return (f"`study.py transfer`, {study.STEPS} steps; sizes are widths {study.WIDTHS} at {study.BASE[1]} layers, or "
            f"depths {study.DEPTHS} at {study.BASE[0]} channels ([all rows](../../docs/results/chapter_34.md)):\n\n"
            + long_table("Best rates", head, rows, shown=[0, 1, 3]))


def isoflop():
    found = study.isoflop()
    figure, axes = pyplot().subplots(figsize=(6, 3.6), layout="constrained")
    rows, whole = [], []
    N, size, said, beside = found["next"]
    for budget, runs in zip([*study.BUDGETS, study.NEXT], [*found["tables"], beside]):
        sizes = [run["N"] for run in runs]
        line, = axes.plot(sizes, [run["loss"] for run in runs], ".-", linewidth=0.8, label=f"{budget:.1e} operations")
        whole += [[f"{budget:.1e}", f"{run['N']:,}", f"{run['D']:,}", f"{run['loss']:.4f}"] for run in runs]
        if budget == study.NEXT:
            continue
        best, least = study.best_of(runs)
        axes.plot(best, least, "*", color=line.get_color())
        rows.append([f"{budget:.1e}", len(runs), f"{best:,.0f}", f"{budget / 6 / best:,.0f}", f"{least:.4f}"])
    axes.plot(study.parameters(*size), said, "s", color=GREY, label=f"foretold for {study.NEXT:.1e}")
    axes.set(xscale="log", xlabel="N", ylabel="validation loss")
    axes.legend(fontsize=8)
    save(figure, HERE / "isoflop.svg")
    long_table("Budgets", ["budget C", "N", "D", "validation loss"], whole, shown=[])
    (k, a), loss, bands = found["grows"], found["loss"], found["bands"]
    run = next(run for run in beside if run["N"] == study.parameters(*size))
    best = min(beside, key=lambda run: run["loss"])
    others = " and ".join(f"{one['N']:,} has {one['loss']:.4f}" for one in beside if one is not run)
    return "\n\n".join([
        "`study.py isoflop`:",
        table(["budget C", "sizes", "best N", "its D", "least loss"], rows),
        f"The law of the size: $N = {k:.2g} \\ C^{{{a:.2f}}}$; its exponent is {bands['a'][0]:.2f} to {bands['a'][1]:.2f} "
        f"in the middle 80% of drawings of runs. The law of loss: $E$ = {loss['E']:.3g}, $A$ = {loss['A']:.3g}, "
        f"$\\alpha$ = {loss['alpha']:.2g}, $B$ = {loss['B']:.3g}, $\\beta$ = {loss['beta']:.2g}.",
        f"For {study.NEXT:.0e} operations the first law said $N$ = {N:,.0f} ({bands['N'][0]:,.0f} to {bands['N'][1]:,.0f}). "
        f"The nearest model has {size[0]} channels and {size[1]} layers, $N$ = {run['N']:,}, $D$ = {run['D']:,}. For it the "
        f"second law said a loss of {said:.4f} ({bands['loss'][0]:.4f} to {bands['loss'][1]:.4f}), and the run had "
        f"{run['loss']:.4f}: the law was off by {said / run['loss'] - 1:+.1%}. Of the sizes beside it, {others}"
        f"{': the foretold size is the best of the three' if best is run else ''}."])


def repeats():
    found = study.repeats()
    head = ["epochs", "tokens of the text", "validation loss", "more than of one epoch"]
    rows = [[times, f"{study.REPEATED_STEPS * study.TOKENS // times:,}", f"{loss:.4f}", f"{loss / found[1] - 1:+.1%}"]
            for times, loss in found.items()]
    return (f"`study.py repeats`: {study.REPEATED_STEPS * study.TOKENS:,} tokens, {study.REPEATED[0]} channels, from a "
            "text of as many tokens or from a part of it:\n\n"
            + long_table("Epochs", head, rows, shown=[0, 2, 4]))


def measure():
    return "\n\n".join([memory(), coordinates(), transfer(), isoflop(), repeats()])
