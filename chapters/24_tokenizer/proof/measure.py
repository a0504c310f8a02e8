"""The measured tables and the chart of chapter 24: one block of GPT-2 on bytes and on three
vocabularies, at equal bytes of text read and at equal FLOPs."""

import pathlib

from measure import ROOT, TEXT, compare, output_of, run, short_text, table, take_turns, turns_text
from plot import GREY, pyplot, save

HERE = pathlib.Path(__file__).resolve().parents[1]
CHAPTER, CHANNELS, BATCH, T = "06_checkpointing", 128, 16, 64
FLAGS = f"--model tiny --batch {BATCH} --lr 1e-3 --beta2 0.99 --schedule constant --warmup 100 --clip 1 --threads 1"
VOCABS = [256, 512, 2048, 8192]  # the first are bytes
STEPS = 1200  # of the run on bytes
ROUNDS, TIMED = 5, 5  # and steps of a round


def name_of(vocab):
    return "bytes" if vocab == 256 else f"{vocab:,}"


def tokenizer(vocab):
    """The flag for a vocabulary of its own, and how many bytes a token of the text has."""
    if vocab == 256:
        return "", 1.0
    folder, tokens = f"runs/bpe-{vocab}", ROOT / f"runs/bpe-{vocab}.bin"
    for command in (f"train --vocab {vocab} --out {folder}", f"encode --tokenizer {folder} --out {tokens}"):
        output_of("ch24_tokenizer", *command.split(), "--data", TEXT)
    return f" --tokenizer {folder}", TEXT.stat().st_size / (tokens.stat().st_size / 2 - 1)


def flops(finished):
    """Of a step's products and attention, those of the head included."""
    return finished.report["extra"]["recompute"]["flops"]


def train(flags):
    """vocabulary -> its run, which goes on until it has the FLOPs of the run on bytes, and the number of
    steps after which it has read as many bytes. There it validates, and at each quarter of the way."""
    short = short_text(BATCH, T)
    budget, runs = STEPS * flops(run(CHAPTER, FLAGS + " --steps 1", short)), {}
    for vocab, (flag, ratio) in flags.items():
        quarter = round(STEPS / ratio / 4)
        steps = round(budget / flops(run(CHAPTER, FLAGS + flag + " --steps 1", short)))
        runs[vocab] = run(CHAPTER, f"{FLAGS}{flag} --steps {steps} --eval-every {quarter}"), 4 * quarter
    return runs


def curve(finished):
    """(steps, bytes read, bits per byte) of each validation."""
    r = finished.report
    points = [(e["step"] + 1, e["bytes_read"], e["bits_per_byte"]) for e in r["evals"]]
    return [*points, (r["steps"], r["bytes_read"], r["bits_per_byte"])]


def budgets_table(runs, flags):
    rows = []
    for vocab, (finished, equal) in runs.items():
        at = {steps: (read, bits) for steps, read, bits in curve(finished)}
        steps = finished.report["steps"]
        rows.append([name_of(vocab), f"{finished.report['model']['parameters']:,}", f"{flags[vocab][1]:.3f}",
                     f"{equal:,}", f"{at[equal][0]:,}", f"{equal * flops(finished) / 1e12:.2f}",
                     f"**{at[equal][1]:.3f}**", f"{steps:,}", f"{at[steps][0]:,}", f"**{at[steps][1]:.3f}**",
                     f"{finished.report['val_loss']:.3f}"])
    head = ["vocabulary", "parameters", "bytes a token", "steps to equal bytes", "bytes read", "TFLOP", "bits per byte",
            "steps to equal FLOPs", "bytes read", "bits per byte", "loss, nats a token"]
    return table(head, rows)


def head_table(runs, flags):
    """What the head costs: bytes of weights, gradients and two moments, bytes of logits, operations, time."""
    short = short_text(BATCH, 4 * T)
    taken, noise = compare(take_turns(ROUNDS, {name_of(v): (CHAPTER, f"{FLAGS}{flag} --steps {TIMED}")
                                               for v, (flag, _) in flags.items()}, short))
    rows = []
    for vocab, (finished, _) in runs.items():
        head = 6 * BATCH * T * CHANNELS * vocab
        rows.append([name_of(vocab), f"{16 * CHANNELS * vocab:,}", f"{4 * BATCH * T * vocab:,}",
                     f"{100 * head / flops(finished):.0f}%", f"{taken[name_of(vocab)][0]:.0f}",
                     f"{taken[name_of(vocab)][1]:.2f}"])
    head = ["vocabulary $V$", "head's weights, gradients, moments: $16 C V$ bytes", "logits: $4 B T V$ bytes",
            "head's share of FLOPs", "ms a step", "to bytes"]
    return table(head, rows) + "\n\n" + turns_text("the four", ROUNDS, noise)


def chart(runs):
    figure, axes = pyplot().subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
    for (vocab, (finished, _)), marker in zip(runs.items(), "os^D"):
        points = curve(finished)
        bits = [p[2] for p in points]
        axes[0].plot([p[1] / 1e6 for p in points], bits, marker=marker, markersize=4)
        axes[1].plot([p[0] * flops(finished) / 1e12 for p in points], bits, marker=marker, markersize=4,
                     label=name_of(vocab))
    axes[0].set(xlabel="bytes of text read, millions", ylabel="bits per byte, held-out text")
    axes[1].set(xlabel="TFLOP")
    for one in axes:
        one.grid(color=GREY, alpha=0.25)
    axes[1].legend(title="vocabulary")
    save(figure, HERE / "bits_per_byte.svg")


def measure():
    flags = {vocab: tokenizer(vocab) for vocab in VOCABS}
    runs = train(flags)
    chart(runs)
    return "\n\n".join([
        f"Chapter 06 with `{FLAGS}` on the Bible: bytes, and `--tokenizer` with vocabularies that were trained on "
        f"it. A sequence is {T} tokens in each, and a step {BATCH * T:,}. Every run ends when it has done as many FLOPs "
        f"as {STEPS:,} steps on bytes. On the way it validates where it has read as many bytes as they:",
        budgets_table(runs, flags),
        "![Bits per byte against bytes read, and against FLOPs, of bytes and three vocabularies](bits_per_byte.svg)",
        "What the head costs:",
        head_table(runs, flags),
    ])
