"""The measured tables of chapter 18: inputs of blocks, states and weights in files."""

import statistics

from measure import long_table, run, short_text, table, take_turns

CHAPTER = "18_offload"
LAYERS, BATCH = 16, 8
MODEL = f"--model small --layers {LAYERS} --channels 128 --heads 4 --batch {BATCH} --threads 1"
ROUNDS = 3
INPUTS = ["every:8", "sqrt", "every:2", "full"]
STATES = ["", "optimizer", "weights", "optimizer,weights"]


def in_turn(all_flags, text):
    """{flags: finished runs}"""
    return take_turns(ROUNDS, {flags: (CHAPTER, f"{MODEL} --steps 3 {flags}") for flags in all_flags}, text)


def both(pair):
    return f"{pair['predicted']:,} / {pair['measured']:,}"


def bytes_of(r, category):
    return both({which: r.memory(category, which) for which in ("predicted", "measured")})


def total(r):
    return sum(of["measured"] for name, of in r.report["memory"][0].items() if name != "rank")


def milliseconds(finished):
    return f"{statistics.median(r.report['step_ms_median'] for r in finished):.0f}"


def inputs_table(text, precision):
    common = f"--precision {precision}"
    runs = in_turn([f"{common} --recompute {policy}{offload}" for policy in INPUTS
                    for offload in ("", " --offload inputs")], text)
    rows = []
    for flags, finished in runs.items():
        r = finished[-1]
        rows.append([f"`{flags.removeprefix(common).strip()}`", bytes_of(r, "Activation"),
                     both(r.report["extra"]["offload"]["inputs"]), milliseconds(finished),
                     f"`{r.hash[-1]}`"])
    head = ["flags", "Activation, predicted / measured", "written and read a step, predicted / measured", "ms a step", "hash"]
    return long_table(f"Inputs in {precision.upper()}", head, rows, shown=[2, 3, 6, 7])


def states_table(text):
    runs = in_turn([f"--ranks 2 --offload {what}" if what else "--ranks 2" for what in STATES],
                   text)
    rows = []
    for flags, finished in runs.items():
        r = finished[-1]
        files = r.report["extra"]["offload"]
        rows.append([f"`{flags}`", f"{r.memory('Param'):,}", f"{r.memory('Optim'):,}",
                     f"{files['bytes']:,}", both(files["moved"]), milliseconds(finished),
                     f"`{r.hash[-1]}`"])
    return table(["flags", "Param", "Optim", "in files",
                  "pages given back a step, in and out, predicted / measured", "ms a step", "hash"],
                 rows)


def everything_table(text):
    rows = []
    for flags in ["", "--recompute full", "--recompute full --offload inputs",
                  "--recompute full --offload inputs,optimizer,weights"]:
        r = run(CHAPTER, f"{MODEL} --steps 1 --ranks 2 --precision bf16 {flags}", text)
        rows.append([f"`{flags}`" if flags else "none", f"{total(r):,}",
                     *(f"{r.memory(c):,}" for c in ("Activation", "Optim", "Master", "Param")),
                     f"`{r.hash[-1]}`"])
    return table(["flags", "peak of rank 0", "Activation", "Optim", "Master", "Param", "hash"],
                 rows)


def measure():
    text = short_text(BATCH, 256)
    in_fp32 = inputs_table(text, "fp32")
    inputs_table(text, "bf16")  # for the page of results
    return "\n\n".join([
        f"`{MODEL}`, {ROUNDS} rounds of 3 steps, which take turns; medians. The machine had other work "
        "besides, so times say no more than the order of magnitude. Inputs in FP32 ([other segments, and BF16](../../docs/results/chapter_18.md)):",
        in_fp32,
        "States and weights on 2 ranks, FP32:",
        states_table(text),
        "All together, 2 ranks in BF16, bytes of rank 0:",
        everything_table(text),
    ])
