#!/usr/bin/env python3
"""A short run of each chapter on a GPU beside the same on the CPU, as tables; status 1 if a loss is
off, or if a recomputation policy changes a bit.

    python3 scripts/gpu_training.py --data runs/bible.txt

The tests of label cuda hold the kernels to tolerances that are derived. Here whole runs are seen to
learn alike: after a few updates, differences of the order of sums are still far below the bounds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Chapter, flags, and by how much of the CPU's a loss may differ. In 16 bits a sum may round to the
# neighbor, 2^-9 away in BF16; FP8 has fewer bits, but the scales come from the same rule.
RUNS = [("01_sgd", "--lr 0.1 --momentum 0.9", 1e-3),
        ("02_adamw", "--optimizer adamw", 1e-3),
        ("03_schedules", "--schedule cosine --warmup 5", 1e-3),
        ("04_clipping", "--micro-batch 4 --clip 1", 1e-3),
        ("05_mixed_precision", "--precision bf16", 1e-2),
        ("05_mixed_precision", "--precision fp16", 1e-2),
        ("06_checkpointing", "--precision bf16 --recompute sqrt", 1e-2),
        ("16_fp8", "--precision fp8", 3e-2)]
# Enough of the text for the batches, and not much for the validation at the end of each run.
TEXT_BYTES = 50_000
POLICIES = ["none", "every:2", "sqrt", "full", "selective"]


class Failed(Exception):
    """A program that did not end well; its last line."""


def trace(args, backend, chapter, flags):
    """The lines of --trace, as objects."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        command = [args.bin / f"ch{chapter}", "--data", args.text, "--model", args.model,
                   "--batch", str(args.batch), "--steps", str(args.steps), "--backend", backend,
                   "--quiet", "--trace", path, *flags.split()]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise Failed(f"{backend}: {last}")
        return [json.loads(line) for line in path.read_text().splitlines()]


def losses(lines):
    return [float.fromhex(line["loss"]) for line in lines]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    row(*["---"] * len(cells))


def beside_the_cpu(args):
    """Success."""
    good = True
    head("chapter", "flags", "first loss, cpu", args.backend, "last loss, cpu", args.backend,
         "largest difference", "")
    for chapter, flags, bound in RUNS:
        try:
            cpu, gpu = (losses(trace(args, of, chapter, flags)) for of in ("cpu", args.backend))
        except (Failed, OSError, ValueError) as error:
            row(chapter, f"`{flags}`", "-", "-", "-", "-", "-", f"FAILED: {error}")
            good = False
            continue
        apart = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu, strict=True))
        fine = all(abs(a - b) <= bound * abs(a) for a, b in zip(cpu, gpu))  # of NaN: false
        row(chapter, f"`{flags}`", f"{cpu[0]:.6f}", f"{gpu[0]:.6f}", f"{cpu[-1]:.6f}",
            f"{gpu[-1]:.6f}", f"{apart:.1e}", "" if fine else f"FAILED: more than {bound:g}")
        good &= fine
    return good


def policies(args):
    """Success: all policies leave the same trace, whose hashes are of all weights."""
    good = True
    print()
    head("precision", "policies with the bits of `none`", "")
    for precision in ("fp32", "bf16"):
        same, different = [], []
        try:
            runs = {policy: trace(args, args.backend, "06_checkpointing",
                                  f"--precision {precision} --micro-batch 4 --recompute {policy}")
                    for policy in POLICIES}
        except (Failed, OSError, ValueError) as error:
            row(precision, "-", f"FAILED: {error}")
            good = False
            continue
        for policy in POLICIES[1:]:
            (same if runs[policy] == runs["none"] else different).append(policy)
        row(precision, ", ".join(same), f"FAILED: {', '.join(different)}" if different else "")
        good &= not different
    return good


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="text file")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/cuda/bin")
    parser.add_argument("--backend", default="cuda", help="what to set beside cpu")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch", type=int, default=16, help="of the chapters; micro-batches of 4")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=TEXT_BYTES, help="of the text")
    return parser.parse_args()


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.text = Path(folder) / "text"
        args.text.write_bytes(Path(args.data).read_bytes()[:args.bytes])
        good = beside_the_cpu(args)
        good &= policies(args)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
