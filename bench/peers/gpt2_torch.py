#!/usr/bin/env python3
"""GPT-2 124M trained in PyTorch: a peer for the time and memory of a whole step.

    python3 bench/peers/gpt2_torch.py --data FILE --batch 4 --seq-len 64 --steps 5

The head is not tied, the vocabulary is 50,304, the optimizer AdamW: as in Ladder. A byte of the
file is a token. What is measured is printed as one JSON object; bench/peers/whole_step.py finds
the fastest settings and compares.
"""

import argparse
import json
import statistics
import time

import torch

from torch_gpt import ATTENTION, GPT2_124M, Gpt, adamw, draw, read_bytes, train_step


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="file whose bytes are tokens")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32",
                        help="bf16: under CPU autocast")
    parser.add_argument("--attention", choices=ATTENTION, default="masked")
    parser.add_argument("--foreach", action="store_true", help="AdamW over all tensors at once")
    parser.add_argument("--keep-grads", action="store_true",
                        help="zero gradients and add, instead of new ones each step")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    train, _ = read_bytes(args.data)
    model = Gpt(GPT2_124M, ATTENTION[args.attention])
    optimizer = adamw(model, 1e-3, (0.9, 0.95), args.foreach)
    step_ms = []
    for _ in range(args.steps):
        start = time.perf_counter()
        loss = train_step(model, optimizer, draw(train, args.batch, args.seq_len),
                          bf16=args.precision == "bf16", fresh_grads=not args.keep_grads)
        step_ms.append(1000 * (time.perf_counter() - start))
    print(json.dumps({"torch": torch.__version__, "step_ms_median": statistics.median(step_ms),
                      "step_ms": step_ms, "final_loss": loss}))


if __name__ == "__main__":
    main()
