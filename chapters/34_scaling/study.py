#!/usr/bin/env python3
"""Many small runs of chapter 34, and the laws that follow from them.

    chapters/34_scaling/study.py coordinates    sizes of activations over widths and depths
    chapters/34_scaling/study.py transfer       loss over learning rates at several widths and depths
    chapters/34_scaling/study.py isoflop        the best size for each budget, and the next budget
    chapters/34_scaling/study.py repeats        the same tokens from a shorter text, read more often

Wants build/cpu and runs/bible.txt. As many runs at once as there are cores, a thread each. A finished
run is kept in runs/34 under its flags and the commit of its program, so a study that was stopped goes on.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import law

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
PROGRAM, TEXT, KEPT = ROOT / "build/cpu/bin/ch34_scaling", ROOT / "runs/bible.txt", ROOT / "runs/34"
BATCH, LENGTH, HEAD, VOCAB = 4, 64, 4, 256
TOKENS = BATCH * LENGTH  # of a step
COMMON = (f"--model tiny --batch {BATCH} --seq-len {LENGTH} --threads 1 --schedule cosine --clip 1 --beta2 0.99 "
          "--seed 1 --quiet")


# ---- runs ----------------------------------------------------------------------------------------


def version():
    """The last commit that touched what the program is made of; if that was changed since, the program itself, too."""
    sources = ["kernels", "common", *(f"chapters/{name}" for name in ("01_sgd", "02_adamw", "03_schedules",
                                                                      "04_clipping", "34_scaling/*.[ch]*"))]
    git = lambda *words: subprocess.run(["git", *words, "--", *sources], cwd=ROOT, check=True,
                                        capture_output=True, text=True).stdout.strip()
    changed = "-" + hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:8] if git("status", "--porcelain") else ""
    return git("log", "-1", "--format=%h") + changed


def report_of(flags, commit, text):
    """The --report of a run: kept, or made now."""
    name = flags if text == TEXT else f"{text.name} {flags}"
    kept = KEPT / f"{commit}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            report = Path(folder, "report.json")
            done = subprocess.run([PROGRAM, "--data", text, "--report", report, *flags.split()], cwd=ROOT,
                                  capture_output=True, text=True)
            if done.returncode not in (0, 3):  # 3: a loss was NaN, which a grid of rates may show
                raise SystemExit(f"study.py: {flags}: {done.stderr.strip()}")
            report.rename(kept)  # whole or not at all
    return json.loads(kept.read_text())


def reports(flags, text=TEXT):
    """The reports of many runs, in their order."""
    commit, done = version(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(report_of, f"{COMMON} {one}", commit, text) for one in flags]
        for one, future in zip(flags, futures):
            loss, done = future.result()["val_loss"], done + 1
            shown = "NaN" if loss is None else f"{loss:.4f}"
            print(f"  {done}/{len(flags)}  {one}: {shown}", file=sys.stderr, flush=True)
    return [future.result() for future in futures]


def losses(flags, text=TEXT):
    """Validation losses; infinite where one is NaN."""
    return [float("inf") if r["val_loss"] is None else r["val_loss"] for r in reports(flags, text)]


def shape(width, depth):
    return f"--channels {width} --heads {width // HEAD} --layers {depth}"


# ---- coordinates ---------------------------------------------------------------------------------

WIDTHS, DEPTHS, BASE = (16, 32, 64, 128), (2, 4, 8, 16), (16, 2)
RULES = {"SP": lambda width, depth: "", "muP": lambda width, depth: f"--mup {BASE[0]},{depth}",
         "CompleteP": lambda width, depth: f"--mup {BASE[0]},{BASE[1]}"}


def coordinates():
    """{rule: (sizes of the logits over WIDTHS, of the last stream over DEPTHS)} after four steps."""
    flags = "--lr 8e-3 --steps 4 --coordinates"
    found = {}
    for rule, mup in RULES.items():
        wide = reports([f"{flags} {shape(w, BASE[1])} {mup(w, BASE[1])}" for w in WIDTHS])
        deep = reports([f"{flags} {shape(BASE[0], d)} {mup(BASE[0], d)}" for d in DEPTHS])
        found[rule] = ([r["extra"]["coordinates"][-1]["logits"] for r in wide],
                       [r["extra"]["coordinates"][-1]["stream"][-1] for r in deep])
    return found


# ---- transfer ------------------------------------------------------------------------------------

SLOWEST = 9
RATES = [2.0**-k for k in range(SLOWEST, 2, -1)]
STEPS = 200


def transfer():
    """{(rule, "width" or "depth"): losses, a row for each of WIDTHS or DEPTHS, a column for each of
    RATES}. At the base's depth CompleteP is muP, and at its width muP is SP."""
    flags = f"--steps {STEPS} --warmup {STEPS // 10}"
    found = {}
    for axis, shapes in (("width", [(w, BASE[1]) for w in WIDTHS]), ("depth", [(BASE[0], d) for d in DEPTHS])):
        for rule in ("SP", "CompleteP"):
            all_of = losses([f"{flags} --lr {rate} {shape(*s)} {RULES[rule](*s)}" for s in shapes for rate in RATES])
            found[rule, axis] = [all_of[i:i + len(RATES)] for i in range(0, len(all_of), len(RATES))]
    return found


# ---- isoFLOP -------------------------------------------------------------------------------------

BUDGETS = (3e10, 6e10, 1.2e11)
NEXT = 3e11
SIZES = [(8, 2), (12, 2), (16, 2), (20, 2), (24, 2), (32, 2), (48, 2), (64, 2)]
EPOCH = int(0.9 * TEXT.stat().st_size) if TEXT.exists() else 0
RATE = 2.0**-7  # below the best of BASE in transfer(), whose runs are short
ONE_RATE = f"--lr {RATE} --mup {BASE[0]},{BASE[1]}"


def parameters(width, depth):
    """N: those of products, which take 2 N operations a token forward: matrices of blocks, and the head."""
    return depth * 12 * width**2 + VOCAB * width


def steps_of(budget, size):
    return max(1, round(budget / (6 * parameters(*size) * TOKENS)))


def trained(budget, sizes):
    """Of each size that takes at least 400 steps for the budget and at most an epoch: N, D and the loss."""
    steps = {size: steps_of(budget, size) for size in sizes}
    steps = {size: n for size, n in steps.items() if n >= 400 and n * TOKENS <= EPOCH}
    found = losses([f"--steps {n} --warmup {n // 10} {ONE_RATE} {shape(*size)}"
                    for size, n in steps.items()])
    return [{"N": parameters(*size), "D": n * TOKENS, "loss": loss} for (size, n), loss in zip(steps.items(), found)]


def best_of(runs):
    """N and loss of the best size for a budget; None if no parabola has one."""
    return law.least([r["N"] for r in runs], [r["loss"] for r in runs])


def growth(tables):
    """k, a of N = k C^a; None if a budget has no best size."""
    best = [best_of(runs) for runs in tables]
    return law.power(BUDGETS, [N for N, _ in best]) if all(best) else None


def isoflop():
    """The runs of each budget, the law of the best N, the law of loss, and the next budget: foretold, then run."""
    tables = [trained(budget, SIZES) for budget in BUDGETS]
    grows, loss = growth(tables), law.fit([run for runs in tables for run in runs])
    if not grows or not loss:
        raise SystemExit("study.py: a budget has no size of least loss among these")
    # Runs are drawn again, for the growth within their budget.
    bands = law.again(lambda some: growth([[r for i, r in some if i == k] for k in range(len(BUDGETS))]),
                      [(i, run) for i, runs in enumerate(tables) for run in runs])
    N = grows[0] * NEXT**grows[1]
    size = min(SIZES, key=lambda s: abs(math.log(parameters(*s) / N)))
    told = {"N": parameters(*size), "D": steps_of(NEXT, size) * TOKENS}
    again = law.again(law.fit, [run for runs in tables for run in runs], times=20)
    law.write(HERE / "law.json", loss)
    print(f"foretold for {NEXT:.0e} operations: N {N:,.0f}; N {told['N']:,}, D {told['D']:,}: loss "
          f"{law.loss_of(loss, told):.4f}", flush=True)
    at = SIZES.index(size)
    return {"tables": tables, "best": [best_of(runs) for runs in tables], "grows": grows, "loss": loss,
            "bands": {"a": law.middle([a for _, a in bands]), "N": law.middle([k * NEXT**a for k, a in bands]),
                      "loss": law.middle([law.loss_of(one, told) for one in again])},
            "next": (N, size, law.loss_of(loss, told), trained(NEXT, SIZES[max(0, at - 1):at + 2]))}


# ---- repeating data ------------------------------------------------------------------------------

TIMES, REPEATED, REPEATED_STEPS = (1, 2, 4, 8, 32), (48, 2), 2000


def repeats():
    """The loss after as many tokens from a text that has 1 / times of them, for each of TIMES."""
    text, n = TEXT.read_bytes(), REPEATED_STEPS * TOKENS
    KEPT.mkdir(parents=True, exist_ok=True)
    found = {}
    for times in TIMES:
        # Of the kilobytes every 2nd, 4th, ...: the first pages alone would be of another style.
        part = b"".join(text[at:at + 1000] for at in range(0, n, 1000 * times))
        copies = KEPT / f"every-{times}.txt"
        # The last tenth of a file is for validation: the same in all.
        copies.write_bytes(part * times + text[EPOCH:][:n // 9])
        found[times] = losses([f"--steps {REPEATED_STEPS} --warmup {REPEATED_STEPS // 10} {ONE_RATE} {shape(*REPEATED)}"],
                              copies)[0]
    return found


def main():
    studies = {"coordinates": coordinates, "transfer": transfer, "isoflop": isoflop, "repeats": repeats}
    if len(sys.argv) != 2 or sys.argv[1] not in studies:
        print(f"study.py: name one of {', '.join(studies)}", file=sys.stderr)
        return 2
    for name, value in studies[sys.argv[1]]().items():
        print(name, value, sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
