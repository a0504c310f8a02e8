"""The measured tables of chapter 30: memory and bytes of each split, and two machines."""

from measure import ROOT, both, run, short_text, table

CHAPTER = "30_hsdp"
MODEL = "--model small --layers 16 --channels 128 --heads 4 --batch 8 --steps 2 --threads 1"
STATES = ["Param", "Master", "Grad", "Optim"]
RANKS = 8


def sent(r, kind):
    bytes_ = r.report["extra"][f"traffic_{kind}"]
    return both(bytes_["predicted"], bytes_["measured"])


def splits(text, flags):
    rows = []
    for R in (1, 2, 4, 8):
        r = run(CHAPTER, f"{MODEL} {flags} --ranks {RANKS} --replicas {R}", text)
        rows.append([f"{R} x {RANKS // R}", both(*(sum(r.memory(c, w) for c in STATES)
                                                 for w in ("predicted", "measured"))),
                     sent(r, "inside"), sent(r, "across"), f"`{r.hash[-1]}`"])
    return table(["R x S", "bytes of Param, Master, Grad, Optim", "bytes sent inside", "across", "hash"],
                 rows)


def two_machines():
    text = (ROOT / "docs/results/two_machines.md").read_text()
    return text.partition("<!-- hsdp:begin -->\n")[2].partition("<!-- hsdp:end -->")[0].partition("\n\n")[2].strip()


def measure():
    text = short_text(batch=8, seq_len=256)
    alone = run("06_checkpointing", f"{MODEL} --precision bf16", text)
    return "\n\n".join([
        f"`{MODEL} --precision bf16 --ranks {RANKS}`, one micro-step, on the first pages of the text. "
        "Bytes of rank 0 that belong to parameters, and what it sends of them in a step; predicted and "
        f"measured are equal where one number stands. One rank of chapter 06 ends with `{alone.hash[-1]}`.",
        splits(text, "--precision bf16"),
        "Two machines, by `bench/two_machines.py`. They are two network namespaces on one computer, and a token "
        "bucket slows the link between them.",
        two_machines(),
    ])
