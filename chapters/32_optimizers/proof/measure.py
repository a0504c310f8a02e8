"""The measured table of chapter 32: what each optimizer keeps, and what Muon sends and computes."""

from measure import both, long_table, run, short_text

FLAGS = "--model tiny --batch 8 --steps 2 --threads 1"
OPTIMIZERS = {"adamw": "$8P$", "lion": "$4P$", "adamw8bit": "$(2+8/64)P$", "adafactor": "$4\\sum(R+N)$", "muon": "$8P$"}


def states(text):
    rows = []
    for name, formula in OPTIMIZERS.items():
        for ranks in (1, 4):
            if name == "adafactor" and ranks > 1:
                continue
            r = run("32_optimizers", f"{FLAGS} --ranks {ranks} --optimizer {name}", text)
            rows.append([f"`{name}`", ranks, formula if ranks == 1 else f"{formula} / {ranks}",
                         r.both("Optim"), f"`{r.hash[-1]}`"])
    return long_table("States", ["`--optimizer`", "ranks", "Optim", "bytes", "hash"], rows, shown=[1, 3, 5])


def muon(text):
    """What Muon sends and computes, beside the formulas."""
    rows = []
    for ranks in (1, 2, 4, 8):
        r = run("32_optimizers", f"{FLAGS} --ranks {ranks} --optimizer muon", text)
        got = r.report["extra"]["muon"]
        owners, others = got["owners"], got["without_owners"]
        one = sum(owners["flops"])
        rows.append([ranks, *(both(got[what]["predicted"], got[what]["measured"]) for what in ("sent", "flops")),
                     f"{got['share_of_step']:.0%}", f"{max(owners['flops']) / one:.1%}",
                     f"{max(others['flops']) / one:.1%}", f"`{r.hash[-1]}`"])
    return long_table("Muon, in one update",
                      ["ranks", "bytes sent for matrices", "operations of rank 0", "to the step's products",
                       "most work of an owner", "without owners", "hash"], rows, shown=[1, 2, 3])


def measure():
    text = short_text(8, 256)
    return (f"`{FLAGS}`, on the first pages of the text. One number: predicted and measured alike. "
            f"[Whole tables](../../docs/results/chapter_32.md).\n\n{states(text)}\n\n"
            f"Muon, in one update:\n\n{muon(text)}")
