"""The measured tables of chapter 09: gradients by number of ranks, and what accumulation costs."""

from measure import both, long_table, run, short_text

PARENT, CHAPTER = "08_zero1", "09_zero2"
MODEL = "--model small --batch 8 --steps 2"
DEEP = "--model small --layers 16 --channels 128 --heads 4 --batch 32 --steps 2"
RANKS = 4


def traffic(r):
    return both(**r.report["extra"]["traffic"])


def total(r):
    return sum(sizes["measured"] for name, sizes in r.report["memory"][0].items() if name != "rank")


def gradients(text):
    shown = ["Param", "Grad", "Optim", "Workspace"]
    rows = []
    parameters = run(PARENT, f"{MODEL} --threads 1 --ranks 1", text).memory("Grad") // 4
    for ranks in (1, 2, 4, 8):
        for chapter in (PARENT, CHAPTER):
            r = run(chapter, f"{MODEL} --threads 1 --ranks {ranks}", text)
            formula = 4 * parameters / (ranks if chapter == CHAPTER else 1)
            rows.append([ranks, chapter, f"{formula:,.0f}", *(r.both(c) for c in shown),
                         f"{total(r):,}", traffic(r), f"`{r.hash[-1]}`"])
    head = ["ranks", "chapter", "Grad by formula, 08: 4P; 09: 4P/N", *shown, "total of all categories", "sent a step", "hash"]
    return long_table("By ranks", head, rows, shown=[2, 3, 6, 7], mib=True)


def accumulation(text):
    rows = []
    for GA in (1, 2, 4, 8):
        flags = f"{DEEP} --threads 1 --ranks {RANKS} --micro-batch {32 // RANKS // GA}"
        for chapter in (PARENT, CHAPTER):
            r = run(chapter, flags, text)
            rows.append([GA, chapter, r.both("Grad"), r.both("Workspace"), r.both("Activation"),
                         f"{total(r):,}", traffic(r), f"`{r.hash[-1]}`"])
    head = ["GA", "chapter", "Grad", "Workspace", "Activation", "total of all categories", "sent a step", "hash"]
    return long_table("By micro-steps", head, rows, shown=[0, 1, 6, 7], mib=True)


def measure():
    return "\n\n".join([
        f"`{MODEL} --threads 1` on the first pages of the text; peak MiB of rank 0, and what it "
        "sends of gradients and weights, predicted and measured alike. [In bytes, with more rows](../../docs/results/chapter_09.md):",
        gradients(short_text(batch=8, seq_len=256)),
        "`small` has few blocks, so the buffers eat much of what was saved. The next table, in MiB again, is of a "
        f"deeper model with smaller blocks, whose batch is cut into GA micro-steps: `{DEEP} --threads 1 --ranks {RANKS}`:",
        accumulation(short_text(batch=32, seq_len=256)),
    ])
