#!/usr/bin/env python3
"""AdamW, Lion and Muon on one text, each at its own best rate: loss by tokens and by processor time.

    chapters/32_optimizers/study.py tiny      4 minutes of processor time
    chapters/32_optimizers/study.py small     half an hour

Wants build/cpu and runs/bible.txt. As many runs at once as there are cores, a thread each. A finished
run is kept in runs/32 under its flags and the commit of its program, so a study that was stopped goes on.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[2]
PROGRAM, TEXT, KEPT = ROOT / "build/cpu/bin/ch32_optimizers", ROOT / "runs/bible.txt", ROOT / "runs/32"
CHARACTERS = 500_000  # of the text: the last tenth of it is held out, and read at the end of each run
STEPS, SEEDS = 100, (1, 2)
COMMON = "--threads 1 --schedule cosine --clip 1 --quiet"
MODELS = {"tiny": "--model tiny --batch 16", "small": "--model small --seq-len 128 --batch 8"}  # 1,024 tokens a step
# Muon's scale makes its updates as long as AdamW's. Lion's rate is smaller, its decay larger by the same factor.
OPTIMIZERS = {"adamw": ("", (1e-3, 2e-3, 4e-3, 8e-3)),
              "lion": ("--beta2 0.99 --weight-decay 0.5", (4e-4, 8e-4, 16e-4, 32e-4)),
              "muon": ("", (8e-3, 16e-3, 32e-3, 64e-3))}


def version():
    """The last commit that touched what the program is made of; if that was changed since, the program itself, too."""
    sources = ["kernels", "common", "chapters/*/*.h", "chapters/32_optimizers/main.cpp"]
    git = lambda *words: subprocess.run(["git", *words, "--", *sources], cwd=ROOT, check=True,
                                        capture_output=True, text=True).stdout.strip()
    changed = "-" + hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:8] if git("status", "--porcelain") else ""
    return git("log", "-1", "--format=%h") + changed


def made(flags, kept):
    """Runs the program. Returns its --report, with the processor seconds of its steps and its losses."""
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        report, trace = Path(folder, "report.json"), Path(folder, "trace.jsonl")
        argv = [PROGRAM, "--data", KEPT / "text.txt", "--report", report, "--trace", trace, *flags.split()]
        pid = os.posix_spawn(PROGRAM, argv, os.environ)
        _, status, used = os.wait4(pid, 0)
        if os.waitstatus_to_exitcode(status) not in (0, 3):  # 3: a loss was NaN, which a grid of rates may show
            raise SystemExit(f"study.py: {flags}: status {os.waitstatus_to_exitcode(status)}")
        losses = [float.fromhex(json.loads(line)["loss"]) for line in trace.read_text().splitlines()]
        found = {**json.loads(report.read_text()), "losses": losses, "seconds": used.ru_utime}
        whole = Path(folder, "kept.json")
        whole.write_text(json.dumps(found))
        whole.rename(kept)  # whole or not at all
    return found


def run_of(flags, commit):
    kept = KEPT / f"{commit}-{hashlib.sha256(flags.encode()).hexdigest()[:16]}.json"
    return json.loads(kept.read_text()) if kept.exists() else made(flags, kept)


def runs_of(model, all_flags):
    """Runs of a model, in their order."""
    KEPT.mkdir(parents=True, exist_ok=True)
    text = KEPT / "text.txt"
    if not text.exists():
        text.write_bytes(TEXT.read_bytes()[:CHARACTERS])
    commit = version()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(run_of, f"{COMMON} {MODELS[model]} {one}", commit) for one in all_flags]
        for one, future in zip(all_flags, futures):
            run = future.result()
            print(f"  {one}: loss {run['val_loss']}, {run['seconds']:.0f} s", file=sys.stderr, flush=True)
    return [future.result() for future in futures]


def loss(run):
    return float("inf") if run["val_loss"] is None else run["val_loss"]


def flags_of(name, rate, seed, steps=STEPS):
    more, _ = OPTIMIZERS[name]
    return f"--optimizer {name} --lr {rate} {more} --seed {seed} --steps {steps} --warmup {steps // 10}"


def summary(name, rate, runs):
    return {"optimizer": name, "rate": rate, "loss": [loss(run) for run in runs],
            "mean loss of ten steps": [[fmean(run["losses"][i:i + 10]) for i in range(0, len(run["losses"]), 10)] for run in runs],
            "seconds": [run["seconds"] for run in runs], "Optim": runs[0]["memory"][0]["Optim"]["measured"]}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        print(f"study.py: name one of {', '.join(MODELS)}", file=sys.stderr)
        return 2
    model = sys.argv[1]
    grid = [(name, rate) for name, (_, rates) in OPTIMIZERS.items() for rate in rates]
    first = dict(zip(grid, runs_of(model, [flags_of(*one, SEEDS[0]) for one in grid])))
    best = {name: min(rates, key=lambda rate: loss(first[name, rate])) for name, (_, rates) in OPTIMIZERS.items()}
    for name, (_, rates) in OPTIMIZERS.items():
        print(name, {rate: loss(first[name, rate]) for rate in rates}, flush=True)
    again = runs_of(model, [flags_of(name, rate, SEEDS[1]) for name, rate in best.items()])
    for (name, rate), second in zip(best.items(), again):
        print(json.dumps(summary(name, rate, [first[name, rate], second])), flush=True)
    # AdamW for as long as Muon has taken.
    times = [first[name, best[name]]["seconds"] for name in ("muon", "adamw")]
    steps = round(STEPS * times[0] / times[1] / 10) * 10
    longer = runs_of(model, [flags_of("adamw", best["adamw"], seed, steps) for seed in SEEDS])
    print(json.dumps({"steps": steps, **summary("adamw", best["adamw"], longer)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
