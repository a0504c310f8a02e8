#!/usr/bin/env python3
"""A whole training step of GPT-2 124M, or of LLaMA's block in its sizes: Ladder and PyTorch in turn.

    build/peers/bin/python bench/peers/whole_step.py --batch 4 --seq-len 64
    build/peers/bin/python bench/peers/whole_step.py --batch 1 --seq-len 1024 --precision bf16
    build/peers/bin/python bench/peers/whole_step.py --model llama-124m --batch 4 --seq-len 64

AdamW, no clipping, random bytes as tokens. PyTorch is compiled, with its own attention and fused
AdamW, unless --torch names others: what was fastest wherever all were tried. Both take turns; then one more run of Ladder shows where its time goes, by operation and against the
floor that this machine sets (bench/step_floor.cpp).
"""

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

from results import add_write, section  # noqa: E402

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": "-1"}
BIN = ROOT / "build/cpu/bin"
PROGRAMS = {"gpt2-124m": {"fp32": BIN / "ch04_clipping", "bf16": BIN / "ch05_mixed_precision"},
            "llama-124m": {"fp32": BIN / "ch19_llama", "bf16": BIN / "ch19_llama"}}
# The peer's model as flags of Ladder; torch_llama.py has its sizes.
MODELS = {"gpt2-124m": ["--model=gpt2-124m"],
          "llama-124m": ["--model=gpt2-124m", "--norm=rms", "--mlp=swiglu", "--position=rope",
                         "--kv-heads=4", "--no-bias"]}
TITLES = {"gpt2-124m": "GPT-2 124M", "llama-124m": "LLaMA's block in the sizes of GPT-2 124M"}

# What PyTorch may do in another way: flags, environment. The first of each is what was fastest
# wherever it was tried.
CHOICES = {
    "model": {"compiled": (["--compile"], {}), "eager": ([], {})},
    "attention": {name: ([f"--attention={name}"], {})
                  for name in ["library", "masked"]},
    "optimizer": {"fused": (["--fused"], {}), "foreach": (["--foreach"], {}), "loop": ([], {})},
    "gradients": {"new": ([], {}), "kept": (["--keep-grads"], {})},
    "waiting": {"asleep": ([], {}), "spinning": ([], {"OMP_WAIT_POLICY": "active"})},
    # Freed memory stays with the process, so that the next step does not ask for it page by page.
    "freed memory": {"kept": ([], KEPT_MEMORY),
                     "returned": ([], {})},
}
WARMUP = 3  # steps of PyTorch before those that count: it compiles, and finds its memory


@dataclass
class Run:
    step_ms: float  # median
    peak_mib: float  # largest resident set of the process: VmHWM


def run_process(command, env=None):
    """What the command prints, and the largest resident set of its process in MiB."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                               env={**os.environ, **(env or {})})
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} {command[1]}: exit status {process.returncode}")
    return output, usage.ru_maxrss / 1024


def run_ladder(program, flags):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        _, peak = run_process([program, *flags, "--quiet", f"--report={report}"])
        return Run(json.loads(report.read_text())["step_ms_median"], peak)


def run_torch(flags, settings, threads):
    """OpenMP's threads sleep while they wait: PyTorch's products have threads of their own, and
    two teams that spin on two cores take each other's time."""
    env = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    words = [sys.executable, Path(__file__).with_name("gpt2_torch.py"), *flags]
    for what, how in settings.items():
        words += CHOICES[what][how][0]
        env |= CHOICES[what][how][1]
    output, peak = run_process(words, env)
    return Run(json.loads(output)["step_ms_median"], peak)


def take_turns(rounds, ladder, torch):
    """Calls both in turn, prints each round, and returns Ladder's median Run."""
    runs = []
    print(f"{'ms a step, MiB at the peak':28}{'ladder':>14}{'PyTorch':>16}")
    for number in range(1, rounds + 1):
        runs.append((ladder(), torch()))
        show(f"round {number}", *runs[-1])
    mine, other = (Run(statistics.median(run.step_ms for run in column),
                       statistics.median(run.peak_mib for run in column))
                   for column in zip(*runs))
    show("median", mine, other)
    print(f"ratio {other.step_ms / mine.step_ms:.2f} in speed, "
          f"{mine.peak_mib / other.peak_mib:.2f} in memory")
    return mine


def show(name, mine, other):
    cells = (f"{run.step_ms:8.1f} {run.peak_mib:7,.0f}" for run in (mine, other))
    print(f"{name:26}" + "".join(cells), flush=True)


def random_file(path, batch, seq_len):
    """Bytes but 0, which no text has. The last tenth holds one batch: validation at the end stays short. Ladder
    takes bytes as tokens with every vocabulary, and so does the peer: tokens are below 256, while
    all 50,304 rows of embedding and head are computed and updated."""
    path.write_bytes(random.Random(1).randbytes(10 * (batch * seq_len + 1)).replace(b"\0", b"\1"))


def self_times(path):
    """({name: ms a step}, ms of a step) of a --timeline, its first step left out. The time of a
    span is without the spans inside it; what a step spends outside of any is "step"."""
    events = [e for e in json.loads(Path(path).read_text())["traceEvents"] if e["ph"] == "X"]
    steps = sorted((e for e in events if e["name"] == "step"), key=lambda e: e["ts"])[1:]
    if not steps:
        raise SystemExit("whole_step.py: a breakdown takes at least --steps 2")
    # Outer spans before those that they hold.
    inside = sorted((e for e in events if e["ts"] >= steps[0]["ts"]),
                    key=lambda e: (e["ts"], -e["dur"], e["name"] != "step"))
    total, open_spans = collections.Counter(), []
    for event in inside:
        while open_spans and event["ts"] >= open_spans[-1]["ts"] + open_spans[-1]["dur"]:
            open_spans.pop()
        total[event["name"]] += event["dur"]
        if open_spans:
            total[open_spans[-1]["name"]] -= event["dur"]
        open_spans.append(event)
    scale = 1e-3 / len(steps)
    return ({name: us * scale for name, us in total.items()},
            sum(step["dur"] for step in steps) * scale)


def breakdown(args, flags):
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) / "timeline.json"
        run_process([args.program, *flags, "--quiet", f"--timeline={timeline}"])
        times, step = self_times(timeline)
    times["outside of any span"] = times.pop("step")
    print(f"\n{'operation':28}{'ms a step':>10}{'share':>8}")
    for name, ms in sorted(times.items(), key=lambda item: -item[1]):
        print(f"{name:28}{ms:10.1f}{ms / step:8.1%}")
    print(f"{'step':28}{step:10.1f}")


def floor(args, step_ms):
    if not Path(args.ceilings).exists():
        return print(f"no {args.ceilings}: no floor")
    output, _ = run_process([args.ceilings, "--ceilings", f"--threads={args.threads}"])
    ceilings = json.loads(output)
    least = ceilings["floor_ms"][args.precision].get(f"B{args.batch}T{args.seq_len}")
    product = ceilings["gemm" if args.precision == "fp32" else "gemm_bf16"]
    if least:
        print(f"floor {least} ms: {least / step_ms:.0%} of it reached "
              f"(product {product} GFLOP/s, copy {ceilings['copy']} GB/s)")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--program", help="of Ladder; else chapter 04 for fp32, 05 for bf16, and 19 "
                        "for llama-124m")
    parser.add_argument("--ceilings", default=ROOT / "build/cpu/bin/bench_operations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of a run; the median counts")
    parser.add_argument("--torch", default="", help="settings of PyTorch that differ from the "
                        "first ones, as 'attention=masked,optimizer=foreach'")
    add_write(parser)
    args = parser.parse_args()
    args.program = args.program or PROGRAMS[args.model][args.precision]
    return args


def given_settings(text):
    settings = {what: next(iter(hows)) for what, hows in CHOICES.items()}
    for part in filter(None, text.split(",")):
        what, _, how = part.partition("=")
        if how not in CHOICES.get(what, {}):
            legal = "; ".join(f"{w}: {', '.join(h)}" for w, h in CHOICES.items())
            raise SystemExit(f"--torch {part}: legal are {legal}")
        settings[what] = how
    return settings


def measure(args):
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "random"
        random_file(data, args.batch, args.seq_len)
        common = [f"--data={data}", f"--batch={args.batch}", f"--seq-len={args.seq_len}",
                  f"--threads={args.threads}"]
        exact = [] if args.precision == "fp32" else [f"--precision={args.precision}"]
        flags = [*common, *exact, f"--steps={args.steps}"]
        ours = [*flags, *MODELS[args.model], "--optimizer=adamw"]
        theirs = [*common, *exact, f"--model={args.model}", f"--warmup={WARMUP}"]
        settings = given_settings(args.torch)
        print("PyTorch: " + ", ".join(f"{what} {how}" for what, how in settings.items()))
        mine = take_turns(args.rounds, lambda: run_ladder(args.program, ours),
                          lambda: run_torch([*theirs, f"--steps={args.steps}"], settings, args.threads))
        if args.model == "gpt2-124m":  # whose operations bench_operations counts
            floor(args, mine.step_ms)
        breakdown(args, ours)


def main():
    args = parse_args()
    sizes = f"B{args.batch}T{args.seq_len}"
    name = "step" if args.model == "gpt2-124m" else "step_llama"
    with section(args.write, f"{name}_{args.precision}_{sizes}",
                 f"A training step of {TITLES[args.model]} in {args.precision.upper()}, batch {args.batch}, "
                 f"{args.seq_len} tokens, beside PyTorch"):
        measure(args)


if __name__ == "__main__":
    main()
