"""The measured tables and the chart of chapter 10: memory of all stages, traffic."""

import pathlib
import re
import statistics

from measure import both, long_table, output_of, result, run, short_text, table, take_turns
from plot import GREY, pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
STAGES = ["07_ddp", "08_zero1", "09_zero2", "10_zero3"]
CHAPTER = STAGES[-1]
MODEL = "--model small --layers 16 --channels 128 --heads 4 --batch 8"
STATES = ["Param", "Master", "Grad", "Optim"]
RANKS = (1, 2, 4, 8)
LARGE, LARGE_RANKS = "gpt3-6.7b", 64


def paper(P, N):
    """Bytes of each stage with 16-bit gradients: arXiv 1910.02054, figure 1."""
    return [16 * P, 4 * P + 12 * P / N, 2 * P + 14 * P / N, 16 * P / N]


def ours(P, N):
    """The same with gradients in FP32."""
    return [18 * P, 6 * P + 12 * P / N, 2 * P + 16 * P / N, 18 * P / N]


def states(r):
    return sum(r.memory(category) for category in STATES)


def traffic(r):
    return both(**r.report["extra"]["traffic"])


def stages(text):
    """{(chapter, ranks): Run} in BF16, whose states the paper has formulas for."""
    flags = f"{MODEL} --steps 2 --threads 1 --precision bf16"
    return {(chapter, N): run(chapter, f"{flags} --ranks {N}", text)
            for N in RANKS for chapter in STAGES}


def buffers(runs, chapter, N):
    """What sections pass through: Workspace beyond that of chapter 07."""
    return runs[chapter, N].memory("Workspace") - runs["07_ddp", N].memory("Workspace")


def stages_table(runs):
    P = runs["07_ddp", 1].memory("Grad") // 4
    rows = []
    for N in RANKS:
        for chapter, theirs, mine in zip(STAGES, paper(P, N), ours(P, N)):
            r = runs[chapter, N]
            rows.append([N, chapter, f"{theirs:,.0f}", f"{mine:,.0f}", f"{states(r):,}",
                         *(r.both(c) for c in STATES), f"{buffers(runs, chapter, N):,}",
                         f"`{r.hash[-1]}`"])
    head = ["ranks", "chapter", "paper", "formula here", "counted", *STATES, "buffers, counted", "hash"]
    return long_table("Memory", head, rows, shown=[12, 13, 14, 15], mib=True)


def chart(runs):
    P = runs["07_ddp", 1].memory("Grad") // 4
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    place = {(chapter, N): 5 * g + i for g, N in enumerate(RANKS)
             for i, chapter in enumerate(STAGES)}
    bottom = dict.fromkeys(place, 0.0)
    for what in [*STATES, "buffers"]:
        heights = {key: (buffers(runs, *key) if what == "buffers" else runs[key].memory(what)) / 2**20
                   for key in place}
        axes.bar(place.values(), heights.values(), bottom=[bottom[key] for key in place],
                 label=what, width=0.85)
        bottom = {key: bottom[key] + heights[key] for key in place}
    theirs = {(chapter, N): value / 2**20 for N in RANKS
              for chapter, value in zip(STAGES, paper(P, N))}
    axes.plot(place.values(), [theirs[key] for key in place], "_", color=GREY, markersize=14,
              label="paper (gradients in 16 bits, no buffers)")
    axes.set_xticks(list(place.values()),
                    [f"{chapter[:2]}\n{N} rank{'s' * (N > 1)}" if chapter == "08_zero1"
                     else chapter[:2] for chapter, N in place])
    axes.set_ylim(0, 1.35 * max(bottom.values()))
    axes.set_ylabel("MiB on rank 0, activations left out")
    axes.legend(fontsize=9, ncol=2, loc="upper right")
    save(figure, HERE / "memory.svg")


def wire(text):
    """Elements on the wire of each stage, in FP32, in units of P (N - 1) / N."""
    rows, N = [], 4
    P = run("07_ddp", f"{MODEL} --steps 1 --threads 1", text).memory("Grad") // 4
    for chapter, theirs in zip(STAGES, ["2P", "2P", "2P", "3P"]):
        cells = []
        for GA in (1, 2):
            r = run(chapter, f"{MODEL} --steps 2 --threads 1 --ranks {N} --micro-batch {2 // GA}",
                    text)
            sent = r.report["extra"]["traffic"]["measured"]
            cells += [traffic(r), f"{sent / 4 / P * N / (N - 1):.3f}"]
        rows.append([chapter, theirs, *cells])
    return table(["chapter, 4 ranks, FP32", "paper, GA = 1", "bytes sent a step, GA = 1",
                  "elements over P(N-1)/N", "bytes, GA = 2", "elements over P(N-1)/N"], rows)


def choices(text, rounds=3):
    """What --prefetch and --reshard-after-forward trade."""
    flags = f"{MODEL} --steps 5 --threads 1 --ranks 2 --micro-batch 2"
    named = {"09_zero2": ("09_zero2", flags)}
    for more in ["", "--prefetch 0", "--reshard-after-forward 0", "--recompute full"]:
        named[f"10 `{more}`" if more else "10"] = (CHAPTER, f"{flags} {more}")
    rows = []
    for name, finished in take_turns(rounds, named, text).items():
        r = finished[-1]
        ms = statistics.median(r.report["step_ms_median"] for r in finished)
        rows.append([name, r.both("Param"), r.both("Workspace"), traffic(r), f"{ms:.0f}",
                     f"`{r.hash[-1]}`"])
    return table(["2 ranks, GA = 2", "Param", "Workspace", "bytes sent a step", "ms a step",
                  "hash"], rows)


def plan(chapter):
    """MiB by category of a model that fits nowhere here."""
    flags = (f"--model {LARGE} --batch {LARGE_RANKS} --ranks {LARGE_RANKS} --threads 1 "
             "--precision bf16 --plan-only")
    line = next(l for l in output_of(f"ch{chapter}", *flags.split()).splitlines() if l.startswith("memory"))
    return {name: float(mib) for name, mib in re.findall(r"(\w+) ([\d.]+) [+=]", line)}


def large():
    plans = {chapter: plan(chapter) for chapter in STAGES}
    P, N = plans["07_ddp"]["Grad"] * 2**20 / 4, LARGE_RANKS
    gb = lambda bytes_: f"{bytes_ / 1e9:.2f}"
    rows = []
    for chapter, theirs, mine in zip(STAGES, paper(P, N), ours(P, N)):
        p = plans[chapter]
        counted = sum(p[category] for category in STATES) * 2**20
        extra = (p["Workspace"] - plans["07_ddp"]["Workspace"]) * 2**20
        rows.append([chapter, gb(theirs), gb(mine), gb(counted), gb(extra)])
    return (f"`{LARGE}`, {P / 1e9:.2f} billion parameters, on {N} ranks in BF16. These are plans, "
            "printed by `--plan-only` and not run; GB on one rank, activations left out:\n\n"
            + table(["chapter", "paper", "formula here", "planned", "buffers"], rows))


def measure():
    text = short_text(batch=8, seq_len=256)
    runs = stages(text)
    chart(runs)
    return "\n\n".join([
        f"`{MODEL} --steps 2 --threads 1 --precision bf16` on the first pages of the text. MiB of "
        "rank 0 that belong to parameters, predicted and measured alike. [In bytes, for other numbers of "
        "ranks](../../docs/results/chapter_10.md):",
        stages_table(runs),
        "![memory of one rank for chapters 07 to 10 at 1, 2, 4 and 8 ranks](memory.svg)",
        large(),
        "What travels in a step of the first table's model:",
        wire(text),
        "Gathered twice or kept, ahead of time or on demand; medians of 3 rounds:",
        choices(text),
        "In the memory of one machine all that is cheap. On a link of 1 Gbit/s, two processes, `small` "
        "with batch 32 ([more rows](../../docs/results/data_parallel.md#chapters-07-to-10-on-the-same-link)):",
        result("stages", shown=[1, 2, 4, 5]),
        "One step of chapters 08 and 10 there, as `bench/shaped_link.py --stages --only '08;10' "
        "--picture` draws it:",
        "![one step of chapters 08 and 10 on a slow link: computation, sums and gathers]"
        "(timeline.svg)",
    ])
