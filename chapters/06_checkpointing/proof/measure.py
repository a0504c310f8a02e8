"""The measured tables and the chart of chapter 06: memory against time for all policies."""

import pathlib

from measure import fastest, fastest_text, long_table, output_of, short_text, take_turns
from plot import GREY, pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
CHAPTER = "06_checkpointing"
LAYERS, CHANNELS, BATCH, T = 16, 128, 8, 256
MODEL = f"--model small --layers {LAYERS} --channels {CHANNELS} --heads 4 --batch {BATCH}"
ROUNDS, STEPS = 10, 3
POLICIES = ["none", "selective:attention", "selective:mlp", "selective", "every:8", "sqrt",
            "every:2", "full"]


def finished_runs(precision):
    """Runs of each policy."""
    wanted = {policy: (CHAPTER, f"{MODEL} --steps {STEPS} --precision {precision} --recompute {policy}")
              for policy in POLICIES}
    return take_turns(ROUNDS, wanted, short_text(BATCH, T))


def policies_table(title, runs):
    rows, (ms, _) = [], fastest(runs)
    for policy, rounds in runs.items():
        r = rounds[0]
        counted = r.report["extra"]["recompute"]
        twice = counted["flops_twice"]
        rows.append([
            f"`{policy}`",
            f"{r.memory('Activation', 'predicted'):,} / {r.memory('Activation'):,}",
            f"{twice['predicted']:,} / {twice['measured']:,}",
            f"{100 * twice['measured'] / (counted['flops'] - twice['measured']):.1f}%",
            f"{ms[policy]:.0f}", f"{ms[policy] / ms['none']:.2f}", f"`{r.hash[-1]}`"])
    head = ["policy", "Activation, predicted / measured", "FLOPs twice, predicted / measured",
            "share", "ms a step", "to none", f"hash of the weights after {STEPS} steps"]
    return long_table(title, head, rows, shown=[0, 3, 5, 7])


def points(runs):
    """Activation in MiB and time of a step against none, by policy."""
    ms, _ = fastest(runs)
    return {policy: (rounds[0].memory("Activation") / 2**20, ms[policy] / ms["none"])
            for policy, rounds in runs.items()}


def chart(at):
    """Names stand beside the chart: dots lie too close together for labels of their own."""
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    for (policy, (mib, ratio)), marker in zip(at.items(), "osD^v<>PX"):
        axes.scatter(mib, ratio, s=64, marker=marker, zorder=3,
                     label=f"{policy}  ({mib:.0f} MiB, {ratio:.2f})")
    axes.set(xlabel="Activation, MiB", ylabel="time of a step, none = 1", xlim=(0, None))
    axes.grid(color=GREY, alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    save(figure, HERE / "memory_time.svg")


def plan():
    """What --plan-only prints."""
    program, flags = f"ch{CHAPTER}", f"{MODEL} --plan-only"
    return (f"What `--plan-only` says of these runs, before any of them:\n\n```\n$ build/cpu/bin/{program} {flags}\n"
            f"{output_of(program, *flags.split())}```")


def measure():
    fp32 = finished_runs("fp32")
    chart(points(fp32))
    in_fp32 = policies_table("In FP32", fp32)
    policies_table("In BF16", finished_runs("bf16"))  # for the page of results
    return "\n\n".join([
        f"`{MODEL}` in FP32, {ROUNDS} rounds of {STEPS} steps. The policies take turns, and of each "
        "the fastest round counts: whatever else the machine does only makes a round slower. FLOPs "
        "are those of matrix products and of attention in one step; the share is of forward and "
        "backward together. [All policies, and BF16](../../docs/results/chapter_06.md):",
        in_fp32,
        fastest_text("policy", fastest(fp32)[1]),
        "![time of a step against activation memory for eight policies](memory_time.svg)",
        plan(),
    ])
