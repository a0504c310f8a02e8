"""The measured tables of chapter 11: memory by degree, what travels, and time."""

import statistics

from measure import long_table, run, short_text, table

PARENT, CHAPTER = "06_checkpointing", "11_tensor_parallel"
MODEL = "--model small --heads 8 --batch 8 --steps 3"
SEQUENCES = "--sequence-parallel"
CATEGORIES = ["Param", "Grad", "Optim", "Activation", "Workspace", "Comm"]
ROUNDS = 5


def memory(text):
    rows = []
    for flags in ("--tp 1", "--tp 2", f"--tp 2 {SEQUENCES}", "--tp 4", f"--tp 4 {SEQUENCES}",
                  "--tp 8", f"--tp 8 {SEQUENCES}", "--tp 8 --recompute selective",
                  f"--tp 8 {SEQUENCES} --recompute selective"):
        r = run(CHAPTER, f"{MODEL} --threads 1 {flags}", text)
        rows.append([f"`{flags}`", *(r.both(c) for c in CATEGORIES),
                     f"{sum(r.memory(c) for c in CATEGORIES):,}", f"`{r.hash[-1]}`"])
    alone = run(PARENT, f"{MODEL} --threads 1", text)
    rows.insert(0, ["06", *(alone.both(c) for c in CATEGORIES[:-1]), "0",
                    f"{sum(alone.memory(c) for c in CATEGORIES):,}", f"`{alone.hash[-1]}`"])
    return long_table("Memory", ["flags", *CATEGORIES, "total", "hash"], rows, shown=[0, 2, 6, 7])


def traffic(text):
    rows = []
    for flags in ("--tp 2", "--tp 4", "--tp 8", "--tp 4 --precision bf16",
                  "--tp 4 --recompute full", "--tp 4 --recompute selective",
                  f"--tp 2 {SEQUENCES}", f"--tp 4 {SEQUENCES}", f"--tp 8 {SEQUENCES}",
                  f"--tp 4 {SEQUENCES} --precision bf16", f"--tp 4 {SEQUENCES} --recompute full"):
        r = run(CHAPTER, f"{MODEL} --threads 1 {flags}", text)
        bytes_ = r.report["extra"]["traffic"]
        rows.append([f"`{flags}`", f"{bytes_['predicted']:,}", f"{bytes_['measured']:,}"])
    return long_table("Traffic", ["flags", "bytes that a rank sends a step, predicted", "measured"], rows, shown=[0, 6, 8])


def times(text):
    """Median milliseconds of a step; the ways take turns."""
    ways = {"06, 2 threads": (PARENT, "--threads 2"),
            "11, `--tp 2`, 1 thread each": (CHAPTER, "--tp 2 --threads 1"),
            f"11, `--tp 2 {SEQUENCES}`, likewise": (CHAPTER, f"--tp 2 --threads 1 {SEQUENCES}")}
    steps = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (chapter, flags) in ways.items():
            r = run(chapter, f"{MODEL} {flags}", text)
            steps[name].append(r.report["step_ms_median"])
    first = statistics.median(steps["06, 2 threads"])
    rows = [[name, f"{statistics.median(ms):.0f}", f"{min(ms):.0f} to {max(ms):.0f}",
             f"{first / statistics.median(ms):.2f}"] for name, ms in steps.items()]
    return table(["", "ms a step, median", f"of {ROUNDS} runs", "speed to one rank"], rows)


def measure():
    text = short_text(batch=8, seq_len=256)
    return "\n\n".join([
        f"`{MODEL} --threads 1` on the first pages of the text, peak bytes of rank 0, predicted and measured alike; the "
        "last column is the hash of the weights. [Other flags](../../docs/results/chapter_11.md):",
        memory(text),
        "What activations and their gradients cost on the wire:",
        traffic(text),
        "Time on two cores; runs took turns:",
        times(text),
    ])
