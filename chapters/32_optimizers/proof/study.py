#!/usr/bin/env python3
"""AdamW, Lion and Muon on one text, each at its own best rate: loss by tokens and by processor time.

    chapters/32_optimizers/proof/study.py tiny      4 minutes of processor time
    chapters/32_optimizers/proof/study.py small     a quarter of an hour

Wants build/cpu and runs/bible.txt. Two runs at once, a thread each.
"""

import resource
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))  # before this folder, which has a measure.py, too
import measure  # noqa: E402

TEXT, CHARACTERS = ROOT / "runs/study.txt", 500_000  # the last tenth is held out, and read at the end of each run
SEEDS = (1, 2)
# Flags and steps. Each step has 1,024 tokens.
MODELS = {"tiny": ("--model tiny --batch 16", 100), "small": ("--model small --seq-len 128 --batch 8", 50)}
# Where the search for a rate begins. Lion's rate is smaller than AdamW's, its decay larger by the same factor.
OPTIMIZERS = {"adamw": ("", 5e-4), "lion": ("--beta2 0.99 --weight-decay 0.5", 4e-4), "muon": ("", 8e-3)}


def run(model, name, rate, seed, steps):
    """The validation loss of a run, its losses, its bytes of Optim, and the seconds of processor time that it took."""
    time = lambda: resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime  # of the children of this process
    before = time()
    found = measure.run("32_optimizers", f"{MODELS[model][0]} --threads 1 --schedule cosine --clip 1 --quiet --optimizer {name} "
                        f"--lr {rate} {OPTIMIZERS[name][0]} --seed {seed} --steps {steps} --warmup {steps // 10}", TEXT)
    loss = found.report["val_loss"]
    return float("inf") if loss is None else loss, found.loss, found.memory("Optim"), time() - before


def best_rate(runs, name, steps):
    """Of rates a factor of 2 apart, the one whose loss is below that of both neighbours."""
    best, tried = OPTIMIZERS[name][1], {}
    while not {best / 2, 2 * best} <= tried.keys():
        rates = [rate for rate in (best, best / 2, 2 * best) if rate not in tried]
        tried |= zip(rates, (found[0] for found in runs([(name, rate, SEEDS[0], steps) for rate in rates])))
        best = min(tried, key=tried.get)
    print(name, dict(sorted(tried.items())), flush=True)
    return best


def show(runs, name, rate, steps):
    """Prints what the seeds of an optimizer have given. Returns their mean time."""
    loss, losses, size, seconds = zip(*runs([(name, rate, seed, steps) for seed in SEEDS]))
    middle = [round(fmean(one[steps // 2 - 10:steps // 2]), 3) for one in losses]
    print(f"{name}, rate {rate}, {steps} steps, Optim {size[0]:,}: ten steps before the middle {middle}, "
          f"validation loss {loss}, seconds {seconds}", flush=True)
    return fmean(seconds)


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        print(f"study.py: name one of {', '.join(MODELS)}", file=sys.stderr)
        return 2
    model, steps = sys.argv[1], MODELS[sys.argv[1]][1]
    TEXT.write_bytes(measure.TEXT.read_bytes()[:CHARACTERS])
    print(f"{measure.machine()}; commit {measure.commit()}")
    with ProcessPoolExecutor(2) as pool, ThreadPoolExecutor(3) as searches:
        made = {}

        def runs(wanted):
            for one in wanted:
                if one not in made:
                    made[one] = pool.submit(run, model, *one)
            return [made[one].result() for one in wanted]

        rates = dict(zip(OPTIMIZERS, searches.map(lambda name: best_rate(runs, name, steps), OPTIMIZERS)))
        seconds = {name: show(runs, name, rate, steps) for name, rate in rates.items()}
        # AdamW for as long as Muon has taken.
        show(runs, "adamw", rates["adamw"], round(steps * seconds["muon"] / seconds["adamw"] / 10) * 10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
