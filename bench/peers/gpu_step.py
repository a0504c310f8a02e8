#!/usr/bin/env python3
"""Whole training steps on one GPU: Ladder and PyTorch, as a table.

    python3 bench/peers/gpu_step.py
    python3 bench/peers/gpu_step.py --programs ladder --rows gpt2-124m,gpt2-774m --steps 50

T 1024, BF16 (FP8 in chapter 16), AdamW unless the row says otherwise, no clipping, nothing recomputed,
random bytes as tokens.
PyTorch: torch.compile, its own attention, fused AdamW; BF16 weights with FP32 masters, and FP32
weights under autocast. What Ladder did is printed before PyTorch starts, which compiles for minutes.

Two conventions of FLOPs a token, L layers, C channels, T tokens, P parameters in products, that is
12 L C^2 + V C (an embedding that is looked up multiplies nothing):
MFU 6P + 12 L C T (PaLM, appendix B: all pairs of tokens, nothing that is computed again);
HFU 6P + 14 L C T (attention's backward pass computes its scores again).
Beside them MFU with half of the pairs, 6P + 6 L C T, as some count for causal attention.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from whole_step import MODELS, ROOT, random_file

T, V = 1024, 50304


@dataclass
class Row:
    """What is trained, by whom."""
    name: str
    layers: int
    channels: int
    products: int  # parameters in products
    batch: int
    chapter: str
    flags: list
    peer: str  # the model of gpt2_torch.py; empty: nobody has the like
    weights: tuple = ("master", "fp32")


def gpt2(layers, channels):
    """Parameters in products of GPT-2."""
    return 12 * layers * channels ** 2 + V * channels


def llama(layers, channels, keys, hidden, vocab):
    """Of LLaMA's block. keys: channels of keys; hidden: of each of the three matrices of the MLP."""
    return layers * channels * (2 * channels + 2 * keys + 3 * hidden) + vocab * channels


# A byte of 256 ends a document. Attention is counted as if there were none.
DOCUMENTS = ["--documents", "--end-of-text=10"]
ROWS = [Row("gpt2-124m", 12, 768, gpt2(12, 768), 32, "05_mixed_precision",
            ["--model=gpt2-124m", "--precision=bf16"], "gpt2-124m"),
        Row("gpt2-774m", 36, 1280, gpt2(36, 1280), 8, "05_mixed_precision",
            ["--model=gpt2-774m", "--precision=bf16"], "gpt2-774m", ("master",)),
        Row("llama-124m", 12, 768, llama(12, 768, 256, 2048, V), 32, "19_llama",
            [*MODELS["llama-124m"], "--precision=bf16"], "llama-124m", ("master",)),
        # The shape of Qwen2.5-0.5B, without the biases of its queries, keys and values.
        Row("qwen2.5-0.5b", 24, 896, llama(24, 896, 128, 4864, 151936), 16, "19_llama",
            ["--model=llama-tiny", "--layers=24", "--heads=14", "--kv-heads=2", "--channels=896",
             "--hidden=4864", "--vocab=151936", "--precision=bf16"], "qwen2.5-0.5b", ("master",)),
        Row("gpt2-124m-fp8", 12, 768, gpt2(12, 768), 32, "16_fp8",
            ["--model=gpt2-124m", "--precision=fp8"], ""),
        Row("gpt2-774m-fp8", 36, 1280, gpt2(36, 1280), 8, "16_fp8",
            ["--model=gpt2-774m", "--precision=fp8"], ""),
        Row("gpt2-124m-documents", 12, 768, gpt2(12, 768), 32, "26_packing",
            ["--model=gpt2-124m", "--precision=bf16", *DOCUMENTS], ""),
        Row("gpt2-124m-8-documents", 12, 768, gpt2(12, 768), 32, "26_packing",
            ["--model=gpt2-124m", "--precision=bf16", *DOCUMENTS, "--row-documents=8"], ""),
        Row("gpt2-124m-muon", 12, 768, gpt2(12, 768), 32, "32_optimizers",
            ["--model=gpt2-124m", "--precision=bf16", "--optimizer=muon", "--newton-schulz=bf16"], ""),
        # Ranks as threads of one process, which take turns on the GPU.
        Row("gpt2-124m-mesh", 12, 768, gpt2(12, 768), 32, "33_mesh",
            ["--model=gpt2-124m", "--precision=bf16", "--ranks=2", "--micro-batch=16"], "")]
# TFLOP/s of dense BF16 products by the makers' data sheets, by what the device's name holds.
PEAKS = {"H200": 989, "H100 80GB HBM3": 989, "H100 PCIe": 756, "H100 NVL": 835, "A100": 312}
WEIGHTS = {"fp32": "FP32 weights under autocast", "master": "BF16 weights, FP32 masters"}


class Failed(Exception):
    """A program that did not end well; its last line."""


@dataclass
class Result:
    program: str
    step_ms: float  # median
    peak_mib: float


def run(command, deadline, limit):
    """What a command printed. It must end within `limit` seconds."""
    left = deadline - time.monotonic()
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              timeout=max(1, min(left, limit)))
    except subprocess.TimeoutExpired:
        raise Failed("out of time") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise Failed(last)
    return done.stdout


def ladder(args, of, data):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run([args.bin / f"ch{of.chapter}", f"--data={data}", f"--batch={args.batch or of.batch}",
             f"--seq-len={T}", f"--steps={args.warmup + args.steps}", f"--backend={args.backend}",
             "--quiet", f"--report={report}", *of.flags], args.deadline, 60)
        found = json.loads(report.read_text())
    peak = sum(of["measured"] for of in found["memory"][0].values() if isinstance(of, dict)) / 2 ** 20
    return Result(f"Ladder {of.chapter[:2]}", found["step_ms_median"], peak)


def torch(args, of, data, weights):
    output = run([args.python, Path(__file__).with_name("gpt2_torch.py"), f"--data={data}",
                  f"--model={of.peer}", f"--batch={args.batch or of.batch}", f"--seq-len={T}",
                  f"--steps={args.steps}", f"--warmup={args.warmup}", f"--weights={weights}",
                  "--device=cuda", "--compile", "--fused", "--precision=bf16",
                  "--attention=library"], args.deadline, 150)
    found = json.loads(output)
    return Result(f"PyTorch {found['torch']}, {WEIGHTS[weights]}", found["step_ms_median"],
                  found["peak_mib"])


def shares(args, of, step_ms, peak):
    """Tokens/s; MFU, HFU and MFU of half of the pairs, as text; dashes where the peak is not known."""
    tokens = 1e3 * (args.batch or of.batch) * T / step_ms
    rates = [1e-12 * tokens * (6 * of.products + pairs * of.layers * of.channels * T)
             for pairs in (12, 14, 6)]
    return [f"{tokens:,.0f}", *(f"{rate / peak:.1%}" if peak else "-" for rate in rates)]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def attempt(args, of, name, peak, function):
    """Prints a row of what function() measured, or one that says why it failed. Returns whether it succeeded."""
    try:
        result = function()
    except (Failed, OSError, ValueError, KeyError) as error:
        row(of.name, name, args.batch or of.batch, f"failed: {error}", "-", "-", "-", "-", "-")
        return False
    row(of.name, result.program, args.batch or of.batch, f"{result.step_ms:.1f}",
        *shares(args, of, result.step_ms, peak), f"{result.peak_mib / 1024:.1f}")
    return True


def device():
    """What the first GPU is called; empty if nobody can tell."""
    try:
        return run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"],
                   time.monotonic() + 20, 20).strip()
    except (Failed, OSError):
        return ""


def names(legal):
    """A parser of some of these, set apart by commas."""
    def parse(text):
        found = text.split(",")
        if not set(found) <= set(legal):
            raise argparse.ArgumentTypeError(f"'{text}'; legal are {', '.join(legal)}")
        return found
    return parse


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    rows, programs = [of.name for of in ROWS], ["ladder", "torch"]
    parser.add_argument("--rows", type=names(rows), default=rows, help=", ".join(rows))
    parser.add_argument("--programs", type=names(programs), default=programs, help="ladder, torch")
    parser.add_argument("--batch", type=int, help="another than that of the row")
    parser.add_argument("--steps", type=int, default=20, help="that count; the median is taken")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of it")
    parser.add_argument("--python", default=sys.executable, help="with a PyTorch that knows CUDA")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/cuda/bin")
    parser.add_argument("--backend", default="cuda")
    args = parser.parse_args()
    args.deadline = time.monotonic() + args.limit
    return args


def main():
    args = parse_args()
    peak = next((tflops for name, tflops in PEAKS.items() if name in device()), None)
    if peak:
        print(f"Per cent are of {peak} TFLOP/s, dense BF16 by the data sheet.\n")
    row("model", "program", "batch", "ms a step", "tokens/s", "MFU", "HFU",
        "MFU, half of the pairs", "GiB at the peak")
    row(*["---"] * 9)
    chosen, good = [of for of in ROWS if of.name in args.rows], True
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "random"
        random_file(data, args.batch or max(of.batch for of in chosen), T)
        for of in chosen if "ladder" in args.programs else []:
            good &= attempt(args, of, "Ladder", peak, lambda of=of: ladder(args, of, data))
        for of in chosen if "torch" in args.programs else []:
            for way in of.weights if of.peer else []:
                attempt(args, of, f"PyTorch, {WEIGHTS[way]}", peak,
                        lambda of=of, way=way: torch(args, of, data, way))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
