"""The measured tables of chapter 20: memory and what travels, by way and degree, and who works how
much."""

import json

from measure import ROOT, both, long_table, output_of, run, short_text, table

PARENT, CHAPTER = "09_zero2", "20_context_parallel"
WAYS = ["gather", "ulysses", "ring"]
ONE = "--batch 1 --micro-batch 1 --steps 1 --threads 1"
# GPT-2 has a row for each of 1,024 positions; LLaMA has as many tokens as one likes.
GPT2 = f"--model gpt2-124m --vocab 256 --layers 8 --channels 256 --heads 8 --seq-len 1024 {ONE}"
# What travels is counted for one block.
SHAPES = {"1": f"--model gpt2-124m --vocab 256 --layers 1 --channels 128 --heads 8 --seq-len 1024 {ONE}",
          "1/2": f"--model llama-nano --layers 1 --channels 128 --seq-len 1024 {ONE}"}
LONG = f"--model llama-nano --layers 16 --channels 32 {ONE}"
LIMIT = 100  # MiB
CATEGORIES = ["Param", "Grad", "Optim", "Activation", "Workspace", "Comm"]


def memory(text):
    alone = run(PARENT, GPT2, text)
    rows = [["09", *(alone.both(c) for c in CATEGORIES), f"`{alone.hash[-1]}`"]]
    for cp in (2, 8):
        for way in WAYS:
            flags = f"--cp {cp} --context {way}"
            r = run(CHAPTER, f"{GPT2} {flags}", text)
            rows.append([f"`{flags}`", *(r.both(c) for c in CATEGORIES), f"`{r.hash[-1]}`"])
    return long_table("Memory", ["flags", *CATEGORIES, "hash"], rows, shown=[0, 4, 5, 6])


def context(finished, what):
    found = finished.report["extra"]["context"][what]
    return found["predicted"], found["measured"]


def traffic(text):
    rows = []
    for cp in (2, 8):
        for kappa, model in SHAPES.items():
            row = [cp, kappa]
            for way in WAYS:
                if way == "ulysses" and kappa == "1/2" and cp == 8:
                    row += ["refused: 4 heads of keys", ""]
                    continue
                for precision in ("fp32", "bf16"):
                    r = run(CHAPTER, f"{model} --cp {cp} --context {way} --precision {precision}", text)
                    row.append(both(*context(r, "sent")))
            rows.append(row)
    head = ["cp", r"$\kappa$", *(f"`{way}`, {p}" for way in WAYS for p in ("FP32", "BF16"))]
    return long_table("Traffic", head, rows, shown=[0, 2, 3])


def work(text):
    rows = []
    for cp in (2, 8):
        for order in ("zigzag", "contiguous"):
            r = run(CHAPTER, f"{GPT2} --cp {cp} --context ring --order {order}", text)
            predicted, pairs = context(r, "pairs")
            if predicted != pairs:
                raise SystemExit(f"measure.py: pairs {pairs}, predicted {predicted}")
            mean = sum(pairs) / cp
            rows.append([cp, f"`{order}`", " ".join(f"{p / mean:.3f}" for p in pairs),
                         f"{max(pairs):,}", f"{mean / max(pairs):.1%}"])
    head = ["cp", "`--order`", "pairs of each rank / mean of all", "pairs of the busiest rank", "mean / busiest"]
    return long_table("Work", head, rows, shown=[2, 3])


def flat():
    rows = []
    for cp in (1, 2, 8):
        T = 512 * cp
        r = run(CHAPTER, f"{LONG} --seq-len {T} --cp {cp} --context ring", short_text(1, T))
        rows.append([cp, f"{T:,}", *(r.both(c) for c in ("Activation", "Workspace"))])
    return table(["cp", "tokens of a sequence", "Activation", "Workspace"], rows)


def planned(cp, T):
    """Bytes of a rank, as --plan-only computes them."""
    flags = f"{LONG} --seq-len {T} --cp {cp} --context ring --plan-only --quiet --report runs/plan.json"
    output_of(f"ch{CHAPTER}", *flags.split())
    plan = json.loads((ROOT / "runs/plan.json").read_text())
    return sum(plan["memory"][0][c]["predicted"] for c in CATEGORIES)


def longest():
    """Tokens doubled while the plan of a rank has at most LIMIT MiB: for the page of results."""
    rows = []
    for cp in (1, 2, 8):
        T = 256
        while planned(cp, 2 * T) <= LIMIT << 20:
            T *= 2
        rows.append([cp, f"{T:,}", f"{planned(cp, T):,}", f"{2 * T:,}"])
    long_table("A sequence that does not fit", ["cp", "longest sequence", "bytes of a rank", f"more than {LIMIT} MiB"],
               rows, shown=[])


def measure():
    text = short_text(1, 1024)
    longest()
    return "\n\n".join([
        f"**Memory.** `{GPT2}`, peak bytes of rank 0, predicted and measured alike; the last column "
        "is the hash of the weights. [Other cp](../../docs/results/chapter_20.md):",
        memory(text),
        f"**A sequence that grows with the ranks.** `{LONG} --context ring`:",
        flat(),
        rf"**Traffic.** `{SHAPES['1']}` ($\kappa = 1$) and `{SHAPES['1/2']}` ($\kappa = 1/2$). Bytes "
        "that rank 0 sends in a step for attention, forward and backward, predicted and measured alike:",
        traffic(text),
        "**Work.** The flags of the first table, with both values of `--order`; pairs of a query and a key, "
        "forward and backward, of all heads and layers, as predicted:",
        work(text),
    ])
