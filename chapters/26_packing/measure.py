"""The measured tables of chapter 26: three distributions of lengths, what plans make of them, and time."""

import bisect
import os
import random
import statistics

from measure import ROOT, run, table

CHAPTER = "26_packing"
T, ROUNDS, BATCH, STEPS = 1024, 2, 4, 4
DOCUMENTS = "--documents --end-of-text 10"
# The model does not matter to the plan.
COUNTED = f"--model llama-nano --layers 1 --channels 16 --seq-len {T} --quiet"
TIMED = f"--model llama-tiny --seq-len {T} --batch {BATCH} --threads 1 --quiet"
KINDS = {
    "log-normal, median 400": lambda draw: 1 + round(draw.lognormvariate(5.99, 1)),
    "mean 100": lambda draw: 2 + round(draw.expovariate(1 / 99)),
    "20 each": lambda draw: 21,
}


def lengths(kind, tokens, seed=1):
    """Tokens of documents, until they are so many. Each has its end and a token at least."""
    draw, some = random.Random(seed), []
    while sum(some) < tokens:
        some.append(max(2, KINDS[kind](draw)))
    return some


def write(kind, tokens, name):
    """Documents of random letters, each a line."""
    draw, path = random.Random(2), ROOT / "runs" / name
    lines = (bytes(draw.choices(b"abcdefghijklmnop     ", k=n - 1)) for n in lengths(kind, tokens))
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def best_fit_cropped(lengths):
    """nanochat's loader on these documents: of 1,000 waiting ones the longest that fits; where none
    does, the shortest fills the row, and its rest is thrown away. Shares of tokens that are thrown away."""
    waiting, source, lost, all_tokens = sorted(lengths[:1000]), iter(lengths[1000:]), 0, 0
    while len(waiting) == 1000:
        room = T + 1
        while room > 0 and waiting:
            fits = bisect.bisect_right(waiting, room)
            n = waiting.pop(fits - 1 if fits else 0)
            lost, all_tokens, room = lost + max(0, n - room), all_tokens + n, max(0, room - n)
            bisect.insort(waiting, more) if (more := next(source, None)) else None
    return lost / all_tokens


def concatenated(lengths):
    """Shares of tokens whose document began in an earlier row, where documents are joined and cut
    every T tokens, and of the documents that are cut."""
    at, later, cut = 0, 0, 0
    for n in lengths:
        first = min(n, T - at % T)
        later, cut, at = later + n - first, cut + (first < n), at + n
    return later / at, cut / len(lengths)


def share(part, of):
    return f"{100 * part / of:.1f}%"


def plans():
    rows = []
    for kind in KINDS:
        text = write(kind, 800_000, "documents.txt")
        for plan, steps in (("--pack ffd", "--batch 33 --steps 8"), ("--pack greedy", "--batch 33 --steps 8"),
                            ("--unpacked", "--batch 2 --micro-batch 1 --steps 4")):
            got = run(CHAPTER, f"{COUNTED} {steps} {DOCUMENTS} {plan}", text).report["extra"]["packing"]
            positions = got["rows"] * T
            rows.append([kind, f"`{plan}`", share(got["trained"], positions), share(got["padded"], positions),
                         share(got["cut"], got["trained"]), share(got["pairs"], got["pairs_of_rows"])])
    return table(["lengths", "plan", "trained", "padded", "cut", "pairs"], rows)


def peers():
    rows = []
    for kind in KINDS:
        some = lengths(kind, 3_000_000)
        later, cut = concatenated(some)
        long = sum(max(0, n - 1 - T) for n in some)
        rows.append([kind, share(long, sum(n - 1 for n in some)), f"{100 * later:.1f}%", f"{100 * cut:.1f}%",
                     f"{100 * best_fit_cropped(some):.1f}%"])
    return table(["lengths", "cut here", "cut if joined", "documents cut if joined", "thrown away by best fit"], rows)


def rate(flags, text):
    """Trained positions a second of processor time, of steps alone: other work on the machine changes it little."""
    spent = []
    for steps in (STEPS, 0):
        before = os.times()
        done = run(CHAPTER, f"{TIMED} --steps {steps} {flags}", text)
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
        if steps:
            trained = done.report["extra"].get("packing", {"trained": STEPS * BATCH * T})["trained"]
    return trained / (spent[0] - spent[1])


def times():
    """To full rows in the same round."""
    rows = []
    for kind in KINDS:
        text = write(kind, 60_000, "documents.txt")
        rounds = [(rate("", text), rate(DOCUMENTS, text)) for _ in range(ROUNDS)]
        ratios = sorted(packed / whole for whole, packed in rounds)
        rows.append([kind, f"{statistics.median(r[0] for r in rounds):,.0f}",
                     f"{statistics.median(r[1] for r in rounds):,.0f}",
                     f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"])
    return table(["lengths", "full rows", "packed", "ratio", "range"], rows)


def measure():
    return "\n\n".join([
        f"Rows of {T} tokens, `--pack-window 1024`, `--row-documents 64`. *Trained* and *padded* are shares of all "
        "positions of the rows, *cut* of the trained ones, *pairs* of the pairs of attention that whole rows have.",
        plans(),
        "The same lengths elsewhere, computed by `measure.py`. *Cut* is the share of positions that do not see the "
        "beginning of their document.",
        peers(),
        f"`{TIMED} --steps {STEPS}` without and with `{DOCUMENTS}` in turns, {ROUNDS} rounds: trained positions a second "
        "of processor time. Rates and ratio are medians over rounds.",
        times(),
    ])
