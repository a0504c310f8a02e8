#!/usr/bin/env python3
"""The model `tiny` trained in PyTorch: a peer for speed and learning curve.

    build/peers/bin/python bench/peers/tiny_torch.py --data runs/bible.txt --compile --fused
    build/peers/bin/python bench/peers/tiny_torch.py --data runs/bible.txt --curve

The first prints the median time of a step, the second a learning curve.

FP32 on the CPU. The learning rate, clipping and decay are those of chapter 04's demonstration:
AdamW 1e-3 with betas 0.9 and 0.99, decay 0.1, clip 1, 100 warm-up steps, cosine to a tenth.
"""

import argparse
import json
import math
import statistics
import time

import torch

from torch_gpt import ATTENTION, TINY, Gpt, adamw, draw, read_bytes, rows, train_step

SEQ_LEN = TINY.positions
PEAK_LR, LOW_LR, WARMUP, CURVE_STEPS = 1e-3, 1e-4, 100, 2000
VALIDATION_TOKENS = 65536


def learning_rate(step):
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    done = min(1.0, (step - WARMUP) / (CURVE_STEPS - WARMUP))
    return LOW_LR + (PEAK_LR - LOW_LR) * (1 + math.cos(math.pi * done)) / 2


@torch.no_grad()
def validation_loss(model, held_out, batch):
    """Mean over as many sequences as Ladder takes, spread over the held-out text in its way."""
    count = min((len(held_out) - 1) // SEQ_LEN, VALIDATION_TOKENS // SEQ_LEN)
    room = len(held_out) - 1 - SEQ_LEN
    starts = [i * room // max(1, count - 1) for i in range(count)]
    parts = [starts[i : i + batch] for i in range(0, count, batch)]
    return sum(model(*rows(held_out, part, SEQ_LEN)).item() * len(part) for part in parts) / count


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="text file; its last tenth is held out")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attention", choices=ATTENTION, default="library")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--fused", action="store_true", help="AdamW in one kernel")
    parser.add_argument("--curve", action="store_true",
                        help=f"train {CURVE_STEPS} steps, validation loss every 500")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    return parser.parse_args()


def main():
    args = parse_args()
    steps = CURVE_STEPS if args.curve else args.steps
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    train, held_out = read_bytes(args.data)
    model = Gpt(TINY, ATTENTION[args.attention])
    optimizer = adamw(model.parameters(), PEAK_LR, (0.9, 0.99), fused=args.fused)
    step_model = torch.compile(model) if args.compile else model

    curve, step_ms = {}, []
    for step in range(steps):
        if args.curve and step % 500 == 0:
            curve[step] = validation_loss(model, held_out, args.batch)
        start = time.perf_counter()
        batch = draw(train, args.batch, SEQ_LEN)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = train_step(step_model, optimizer, batch, clip=1.0)
        step_ms.append(1000 * (time.perf_counter() - start))
    if args.curve:
        curve[steps] = validation_loss(model, held_out, args.batch)

    result = {"torch": torch.__version__, "step_ms_median": statistics.median(step_ms),
              "final_loss": loss, "val_loss": curve}
    if args.json:
        print(json.dumps(result))
        return
    print(f"PyTorch {torch.__version__}, {args.threads} threads, batch {args.batch}: "
          f"{result['step_ms_median']:.1f} ms a step (median of {steps})")
    for step, value in curve.items():
        print(f"step {step:5}: validation loss {value:.3f}")


if __name__ == "__main__":
    main()
