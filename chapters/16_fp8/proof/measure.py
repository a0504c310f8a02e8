"""The measured tables of chapter 16: loss and time of FP8, its bytes, and ranks that share scales."""

from measure import compare, run, short_text, table, take_turns, turns_text

CHAPTER = "16_fp8"
TINY = "--model tiny --batch 12 --beta2 0.99 --clip 1 --lr 1e-3"
LONG = f"{TINY} --steps 600 --schedule cosine --warmup 50"
RANKS = f"{TINY.replace('--batch 12', '--batch 8')} --steps 200 --precision fp8 --threads 1"
ROUNDS = 6
PRECISIONS = ["fp32", "bf16", "fp8"]
CATEGORIES = ["Param", "Master", "Grad", "Optim", "Activation", "Workspace"]


def curves():
    runs = {p: run(CHAPTER, f"{LONG} --precision {p}") for p in PRECISIONS}
    wanted = {p: (CHAPTER, f"{TINY} --steps 60 --precision {p}") for p in PRECISIONS}
    times, noise = compare(take_turns(ROUNDS, wanted, short_text(12, 64)))
    rows = [[p, f"{r.report['final_loss']:.4f}", f"{r.report['val_loss']:.4f}",
             f"{max(abs(a - b) / b for a, b in zip(r.loss, runs['fp32'].loss)):.1%}",
             f"{times[p][0]:.1f}", f"{times[p][1]:.2f}"]
            for p, r in runs.items()]
    head = ["precision", "loss of the last batch", "validation loss",
            "largest deviation of a step's loss from fp32's", "ms a step", "to fp32"]
    parameters = runs["fp32"].memory("Grad") / 4
    bytes_ = [[p, *(r.both(c) for c in CATEGORIES),
               f"{sum(r.memory(c) for c in CATEGORIES[:4]) / parameters:.2f}"]
              for p, r in runs.items()]
    return "\n\n".join([
        f"`{LONG} --precision ...`:", table(head, rows),
        f"Times are of shorter runs, `{TINY} --steps 60`. "
        f"{turns_text('the precisions', ROUNDS, noise)}",
        "Peak bytes of the long runs, predicted and measured (equal where one number stands), and "
        "bytes a parameter of the first four together (padding counts as parameters):",
        table(["precision", *CATEGORIES, "bytes a parameter"], bytes_)])


def recomputation():
    flags = "--model small --batch 2 --steps 1"
    text = short_text(2, 256)
    rows = []
    for policy in ["none", "selective", "sqrt", "full"]:
        row = [f"`{policy}`"]
        for precision in ["bf16", "fp8"]:
            r = run(CHAPTER, f"{flags} --recompute {policy} --precision {precision}", text)
            row += [r.both("Activation"), r.both("Workspace")]
        rows.append(row)
    head = ["`--recompute`", "Activation, bf16", "Workspace, bf16", "Activation, fp8",
            "Workspace, fp8"]
    return (f"With recomputation, of a model of 6 blocks, `{flags}`, predicted and measured (equal "
            "where one number stands):\n\n" + table(head, rows))


def ranks():
    rows = []
    one = run(CHAPTER, f"{RANKS} --ranks 1")
    for name, more in [("1", "--ranks 1"), ("2", "--ranks 2"), ("4", "--ranks 4"),
                       ("2, and the first maximum is lost",
                        "--ranks 2 --ddp bucketed --fault skip:all_reduce:2")]:
        r = run(CHAPTER, f"{RANKS} {more}")
        differs = next((str(i) for i, (a, b) in enumerate(zip(one.hash, r.hash)) if a != b),
                       "never")
        rows.append([name, f"{r.loss[-1]:.4f}", f"{r.report['val_loss']:.4f}", differs,
                     f"`{r.hash[-1]}`"])
    head = ["ranks", "loss of the last batch", "validation loss",
            "first step whose weights differ from one rank's", "hash of the weights at the end"]
    return f"On ranks, `{RANKS}`:\n\n" + table(head, rows)


def measure():
    return "\n\n".join([curves(), recomputation(), ranks()])
