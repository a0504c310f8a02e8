"""The measured tables and pictures of chapter 34, from the runs that study.py makes or has kept."""

import sys
from pathlib import Path

from measure import memory_table, run, table
from plot import GREY, pyplot, save

HERE = Path(__file__).resolve().parents[1]


sys.path.append(str(HERE))
import study  # noqa: E402


def memory():
    flags = "--model tiny --channels 256 --heads 8 --mup 64,2 --batch 12 --micro-batch 4 --steps 1"
    text = memory_table(run("34_scaling", flags), {
        "Param": "$4P$", "Grad": "$4P$ for each buffer of chapter 04", "Optim": "$8P$",
        "Workspace": "that of chapter 04, and $2 \\cdot 8 \\cdot 12$ for two more norms"})
    return f"`{flags}`:\n\n" + text


def coordinates():
    found = study.coordinates()
    rows = [[rule, *(f"{x:.3f}" for x in wide), *(f"{x:.3f}" for x in deep)]
            for rule, (wide, deep) in found.items()]
    head = ["", *(f"width {w}" for w in study.WIDTHS), *(f"depth {d}" for d in study.DEPTHS)]
    width, depth = study.BASE
    return (f"`study.py coordinates`, after four steps at rate 0.008: the mean size of the logits at {depth} layers, "
            f"and of the last block's output at {width} channels:\n\n" + table(head, rows))


def transfer():
    found = study.transfer()
    for axis, sizes in (("width", study.WIDTHS), ("depth", study.DEPTHS)):
        rules = [rule for rule in study.RULES if (rule, axis) in found]
        figure, panels = pyplot().subplots(1, len(rules), figsize=(4.2 * len(rules), 3.4), sharey=True,
                                           layout="constrained")
        for panel, rule in zip(panels, rules):
            for size, row in zip(sizes, found[rule, axis]):
                line, = panel.plot(study.RATES, row, marker=".", label=f"{axis} {size}")
                panel.plot(study.RATES[row.index(min(row))], min(row), "o", color=line.get_color())
            panel.set(xscale="log", xlabel="--lr", title=rule, ylim=(1.75, 2.6))
            panel.grid(color=GREY, linewidth=0.3)
        panels[0].set_ylabel("validation loss")
        panels[0].legend(fontsize=8)
        save(figure, HERE / f"{axis}.svg")
    rows = []
    for (rule, axis), losses in found.items():
        best = [study.RATES[row.index(min(row))] for row in losses]
        at = losses[0].index(min(losses[0]))  # the best rate of the base
        rows.append([f"{rule}, {axis}", *(f"{rate:.4f}" for rate in best),
                     *(f"{min(row):.4f}" for row in losses), f"{losses[-1][at] - min(losses[-1]):.4f}"])
    head = ["", *(f"best rate at size {k}" for k in range(1, 5)), *(f"its loss {k}" for k in range(1, 5)),
            "lost at size 4 with the best rate of size 1"]
    return (f"`study.py transfer`, {study.STEPS} steps; sizes are widths {study.WIDTHS} at 2 layers, or depths "
            f"{study.DEPTHS} at {study.BASE[0]} channels:\n\n" + table(head, rows))


def isoflop():
    found = study.isoflop()
    figure, axes = pyplot().subplots(figsize=(6, 3.6), layout="constrained")
    rows = []
    for budget, runs, (best, least) in zip(study.BUDGETS, found["tables"], found["best"]):
        N = [run["N"] for run in runs]
        line, = axes.plot(N, [run["loss"] for run in runs], ".-", linewidth=0.8, label=f"{budget:.0e} operations")
        axes.plot(best, least, "*", color=line.get_color())
        rows.append([f"{budget:.0e}", len(N), f"{best:,.0f}", f"{budget / 6 / best:,.0f}", f"{least:.4f}"])
    N, (width, depth), said, (last,) = found["next"]
    axes.plot(last["N"], last["loss"], "s", color=GREY, label=f"{study.NEXT:.0e}, foretold")
    axes.set(xscale="log", xlabel="N", ylabel="validation loss")
    axes.legend(fontsize=8)
    save(figure, HERE / "isoflop.svg")
    (k, a), (low, high), loss = found["grows"], found["band"], found["loss"]
    return "\n\n".join([
        "`study.py isoflop`:",
        table(["budget C", "sizes", "best N", "its D", "least loss"], rows),
        f"The law: $N = {k:.3g} \\ C^{{{a:.2f}}}$; the middle 80% of the exponent over drawings of runs is {low:.2f} "
        f"to {high:.2f}. The law of loss: $E$ = {loss['E']:.3g}, $A$ = {loss['A']:.3g}, $\\alpha$ = {loss['alpha']:.3g}, "
        f"$B$ = {loss['B']:.3g}, $\\beta$ = {loss['beta']:.3g}.",
        f"Of {study.NEXT:.0e} operations the first law said $N$ = {N:,.0f}. The nearest model has {width} channels and "
        f"{depth} layers, $N$ = {last['N']:,} and $D$ = {last['D']:,}. The second law said a loss of {said:.4f} before "
        f"the run, and the run had {last['loss']:.4f}: {said / last['loss'] - 1:+.1%}."])


def measure():
    return "\n\n".join([memory(), coordinates(), transfer(), isoflop()])
