"""The measured tables of chapter 08: states of the optimizer by number of ranks, and traffic."""

from measure import long_table, run, short_text, table

PARENT, CHAPTER = "07_ddp", "08_zero1"
MODEL = "--model small --batch 8 --steps 2"
CATEGORIES = ["Param", "Master", "Grad", "Optim", "Activation", "Workspace", "Comm"]


def total(r):
    return sum(r.memory(category) for category in CATEGORIES)


def states(text, precision):
    """Memory of both chapters by number of ranks, beside the formula."""
    flags = f"{MODEL} --threads 1 --precision {precision}"
    # Of the unpadded model: 07 keeps all of P, 4 bytes each as gradients.
    parameters = run(PARENT, f"{flags} --ranks 1", text).memory("Grad") // 4
    per_parameter = 12 if precision == "bf16" else 8
    shown = [c for c in CATEGORIES if precision == "bf16" or c != "Master"]
    rows = []
    for ranks in (1, 2, 4, 8):
        for chapter in (PARENT, CHAPTER):
            r = run(chapter, f"{flags} --ranks {ranks}", text)
            share = ranks if chapter == CHAPTER else 1
            formula = per_parameter * parameters / share
            rows.append([ranks, chapter, f"{formula:,.0f}", *(r.both(c) for c in shown),
                         f"{total(r):,}", f"`{r.hash[-1]}`"])
    what, name = ("12P", "Master + Optim") if precision == "bf16" else ("8P", "Optim")
    head = ["ranks", "chapter", f"{name} by formula: {what} in 07, {what}/N in 08", *shown, "total", "hash"]
    return long_table(f"In {precision.upper()}", head, rows, shown=[6, 7] if precision == "bf16" else [2, 3, 6, 7],
                      mib=True)


def traffic(text):
    rows = []
    for precision in ("fp32", "bf16"):
        for chapter in (PARENT, CHAPTER):
            r = run(chapter, f"{MODEL} --threads 1 --ranks 4 --precision {precision}", text)
            bytes_ = r.report["extra"]["traffic"]
            rows.append([precision, chapter, f"{bytes_['predicted']:,}", f"{bytes_['measured']:,}"])
    return table(["precision", "chapter", "bytes that a rank sends a step, predicted", "measured"], rows)


def measure():
    text = short_text(batch=8, seq_len=256)
    return "\n\n".join([
        f"`{MODEL} --threads 1` on the first pages of the text, peak MiB, predicted and measured "
        "alike; the last column is the hash of the weights. [In bytes, for other numbers of "
        "ranks](../../docs/results/chapter_08.md):",
        states(text, "fp32"),
        "The same with `--precision bf16`:",
        states(text, "bf16"),
        "What travels of gradients and weights, at 4 ranks:",
        traffic(text),
    ])
