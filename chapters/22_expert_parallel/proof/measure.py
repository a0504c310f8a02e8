"""The measured tables of chapter 22: memory, and what travels."""

import math
import statistics

from measure import both, long_table, run, short_text, table

PARENT, CHAPTER = "21_moe", "22_expert_parallel"
MEMORY = "--model moe-tiny --batch 8 --micro-batch 1 --steps 1 --threads 1"
ROWS = "--model moe-tiny --layers 1 --batch 64 --micro-batch 8 --steps 1 --threads 1"
RANKS, EXPERTS, CHANNELS, TOKENS = 8, 8, 128, 64
CATEGORIES = ["Param", "Grad", "Optim", "Activation", "Workspace", "Comm"]


def memory():
    text = short_text(8, TOKENS)
    alone = run(PARENT, MEMORY, text)
    rows = [["21", *(alone.both(c) for c in CATEGORIES), f"`{alone.hash[-1]}`"]]
    for ep in (1, 2, 4, 8):
        flags = f"--ranks {RANKS} --ep {ep}"
        r = run(CHAPTER, f"{MEMORY} {flags}", text)
        rows.append([f"`{flags}`", *(r.both(c) for c in CATEGORIES), f"`{r.hash[-1]}`"])
    return table(["flags", *CATEGORIES, "hash"], rows)


def owners(ep, k):
    """Rows that a token sends to other ranks if all sets of k experts are as likely."""
    away = math.comb(EXPERTS - EXPERTS // ep, k) / math.comb(EXPERTS, k)
    return (ep - 1) * (1 - away)


def traffic():
    text = short_text(64, TOKENS)
    n = 64 // RANKS * TOKENS
    rows = []
    for k in (1, 2, 4):
        for ep in (2, 4, 8):
            chosen = f"--experts-per-token {k}" + (" --no-renormalize" if k == 1 else "")
            r = run(CHAPTER, f"{ROWS} {chosen} --ranks {RANKS} --ep {ep}", text)
            found = r.report["extra"]["expert_parallel"]
            elements = lambda each: f"{2 * CHANNELS * each:,.0f}"
            counted = lambda what: statistics.mean(found["rows"][what])
            rows.append([k, ep, elements(k * n * (ep - 1) / ep), elements(counted("of_experts")),
                         elements(n * owners(ep, k)), elements(counted("of_owners")),
                         both(*(found["sent"][w] for w in ("predicted", "measured")))])
    head = ["$k$", "ep", r"formula, one row for each choice: $2knC\frac{ep-1}{ep}$", "the same, counted",
            "formula, one row for each owner", "the same, counted", "bytes of rank 0, forward and backward"]
    return long_table("Traffic", head, rows, shown=[3, 6, 8])


def measure():
    return "\n\n".join([
        f"**Memory.** `{MEMORY}`, peak bytes of rank 0. Predicted and measured are equal where one "
        "number stands; the last column is the hash of the weights:",
        memory(),
        f"**Traffic.** `{ROWS} --ranks {RANKS}`: $n = 512$ tokens of a rank, $C = {CHANNELS}$, "
        f"$E = {EXPERTS}$. Elements that a rank sends forward in a step, mean of all ranks; and bytes, "
        "predicted and measured alike. [All rows](../../docs/results/chapter_22.md):",
        traffic(),
    ])
