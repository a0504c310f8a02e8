#!/usr/bin/env python3
"""A whole training step of GPT-2 on one GPU: Ladder's chapter 05 and PyTorch, as a table.

    python3 bench/peers/gpu_step.py
    python3 bench/peers/gpu_step.py --models gpt2-124m,gpt2-1558m --steps 50

T 1024, BF16, AdamW, no clipping, nothing recomputed, random bytes as tokens, each at the largest
power of two of sequences that it finds memory for. PyTorch: torch.compile, its own attention,
fused AdamW; FP32 weights under autocast (--weights fp32), or BF16 weights with FP32 masters
(--weights master): what is faster with the first model is kept for the others.

Two conventions of FLOPs a token, L layers, C channels, T tokens, P parameters in products, that is
12 L C^2 + V C (an embedding that is looked up multiplies nothing):
MFU 6P + 12 L C T (PaLM, appendix B: all pairs of tokens, nothing that is computed again);
HFU 6P + 14 L C T (attention's backward pass computes its scores again).
Beside them MFU with half of the pairs, 6P + 6 L C T, as some count for causal attention.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from whole_step import ROOT, random_file

T, V = 1024, 50304
# Layers, channels, and the batches to try.
MODELS = {"gpt2-124m": (12, 768, [256, 128, 64, 32, 16, 8, 4]),
          "gpt2-350m": (24, 1024, [128, 64, 32, 16, 8, 4]),
          "gpt2-774m": (36, 1280, [64, 32, 16, 8, 4, 2]),
          "gpt2-1558m": (48, 1600, [32, 16, 8, 4, 2, 1])}
# TFLOP/s of dense BF16 products by the makers' data sheets, by what the device's name holds.
PEAKS = {"H200": 989, "H100 80GB HBM3": 989, "H100 PCIe": 756, "H100 NVL": 835, "A100": 312}
WEIGHTS = {"fp32": "autocast", "master": "master weights"}


class Failed(Exception):
    """A program that did not end well; its last line."""


class NoMemory(Failed):
    pass


@dataclass
class Result:
    program: str
    batch: int
    step_ms: float  # median
    peak_mib: float


def run(command, deadline):
    left = deadline - time.monotonic()
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              timeout=max(1, left))
    except subprocess.TimeoutExpired:
        raise Failed("out of time") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise (NoMemory if re.search("(no|out of) memory", last) else Failed)(last)
    return done.stdout


def ladder(args, model, data, deadline):
    """At the first batch that finds memory: what does not is refused before the first step."""
    for batch in MODELS[model][2]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            try:
                run([args.program, f"--data={data}", f"--model={model}", f"--batch={batch}",
                     f"--steps={args.warmup + args.steps}", "--optimizer=adamw",
                     f"--precision={args.precision}", f"--backend={args.backend}", "--quiet",
                     f"--report={report}", *args.flags.split()], deadline)
            except NoMemory:
                continue
            found = json.loads(report.read_text())
        peak = sum(of["measured"] for of in found["memory"][0].values()) / 2 ** 20
        return Result("Ladder", batch, found["step_ms_median"], peak)
    raise NoMemory("no batch finds memory")


def torch(args, model, data, weights, deadline):
    batches = ",".join(str(batch) for batch in MODELS[model][2])
    output = run([args.python, Path(__file__).with_name("gpt2_torch.py"), f"--data={data}",
                  f"--model={model}", f"--batch={batches}", f"--seq-len={T}",
                  f"--steps={args.steps}", f"--warmup={args.warmup}",
                  f"--weights={weights}", "--device=cuda", "--compile", "--fused",
                  "--precision=bf16", "--attention=library"], deadline)
    found = json.loads(output)
    return Result(f"PyTorch {found['torch']}, {WEIGHTS[weights]}", found["batch"],
                  found["step_ms_median"], found["peak_mib"])


def tokens_per_second(result):
    return 1e3 * result.batch * T / result.step_ms


def shares(model, result, peak):
    """MFU, HFU and MFU of half of the pairs, as text; dashes where the peak is not known."""
    L, C, _ = MODELS[model]
    products = 6 * (12 * L * C * C + V * C)
    rates = [1e-12 * tokens_per_second(result) * (products + pairs * L * C * T)
             for pairs in (12, 14, 6)]
    return [f"{rate / peak:.1%}" if peak else "-" for rate in rates]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def show(model, result, peak):
    row(model, result.program, result.batch, f"{result.step_ms:.1f}",
        f"{tokens_per_second(result):,.0f}", *shares(model, result, peak),
        f"{result.peak_mib / 1024:.1f}")


def attempt(model, name, function):
    """function() shown as a row; None, and a row that says why, if it fails."""
    try:
        return function()
    except (Failed, OSError, ValueError, KeyError) as error:
        row(model, name, "-", "-", f"failed: {error}", "-", "-", "-", "-")
        return None


def ceilings(args, deadline):
    """What the device is called and can do; {} if nobody can tell."""
    try:
        script = Path(__file__).with_name("gpu_ceilings.py")
        found = json.loads(run([args.python, script], deadline))
    except (Failed, OSError, ValueError) as error:
        print(f"No PyTorch that sees a GPU, so no peer and no peak: {error}\n")
        return {}
    print(f"{found['device']}, PyTorch {found['torch']}: a product of 8192 x 8192 x 8192 in BF16 "
          f"reaches {found['product']:.0f} TFLOP/s, a copy {found['copy']:.0f} GB/s.\n")
    return found


def compare(args, model, peak, ways):
    """A row for each program. What Ladder did, and what PyTorch did in each of the ways."""
    deadline = time.monotonic() + args.limit
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "random"
        random_file(data, MODELS[model][2][0], T)
        mine = attempt(model, "Ladder", lambda: ladder(args, model, data, deadline))
        if mine:
            show(model, mine, peak)
        others = {}
        for way in ways:
            result = attempt(model, f"PyTorch, {WEIGHTS[way]}",
                             lambda way=way: torch(args, model, data, way, deadline))
            if result:
                show(model, result, peak)
                others[way] = result
    return mine, others


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","),
                        default=["gpt2-124m", "gpt2-774m"])
    parser.add_argument("--steps", type=int, default=20, help="that count; the median is taken")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--limit", type=float, default=150, help="seconds for each model")
    parser.add_argument("--python", default=sys.executable, help="with a PyTorch that knows CUDA")
    parser.add_argument("--program", default=ROOT / "build/cuda/bin/ch05_mixed_precision")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--weights", type=lambda text: text.split(","), default=list(WEIGHTS),
                        help="of PyTorch: fp32, master")
    parser.add_argument("--flags", default="", help="more flags for Ladder")
    args = parser.parse_args()
    for model in args.models:
        if model not in MODELS:
            parser.error(f"no model {model}; legal are {', '.join(MODELS)}")
    for way in args.weights:
        if way not in WEIGHTS:
            parser.error(f"--weights {way}: legal are {', '.join(WEIGHTS)}")
    return args


def main():
    args = parse_args()
    found = ceilings(args, time.monotonic() + 60)
    peak = next((tflops for name, tflops in PEAKS.items() if name in found.get("device", "")), None)
    if peak:
        print(f"Per cent are of {peak} TFLOP/s, dense BF16 by the data sheet.\n")
    row("model", "program", "batch", "ms a step", "tokens/s", "MFU", "HFU",
        "MFU, half of the pairs", "GiB at the peak")
    row(*["---"] * 9)
    ways, ratios, good = args.weights if found else [], {}, True
    for model in args.models:
        mine, others = compare(args, model, peak, ways)
        good &= mine is not None
        if others:
            ways = [max(others, key=lambda way: tokens_per_second(others[way]))]
            if mine:
                ratios[model] = tokens_per_second(mine) / tokens_per_second(others[ways[0]])
    print()
    for model, ratio in ratios.items():
        print(f"{model}: {ratio:.2f} times the tokens/s of PyTorch.")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
