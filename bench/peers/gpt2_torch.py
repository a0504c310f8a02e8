#!/usr/bin/env python3
"""GPT-2, or LLaMA's block in its sizes, trained in PyTorch: a peer for the time and memory of a step.

    build/peers/bin/python bench/peers/gpt2_torch.py --data FILE --batch 4 --seq-len 64 --steps 5
    build/peers/bin/python bench/peers/gpt2_torch.py --data FILE --device cuda --compile --fused \\
        --model gpt2-774m --batch 8 --seq-len 1024 --precision bf16 --attention library

The head is not tied, the vocabulary is 50,304, the optimizer AdamW: as in Ladder. A byte of the
file is a token. What is measured is printed as one JSON object; bench/peers/whole_step.py compares
on a CPU, bench/peers/gpu_step.py on a GPU.

Timed is the whole step, from drawing the batch to the loss on the host; the median counts.
"""

import argparse
import json
import time

import torch

from torch_gpt import ATTENTION, GPT2, Gpt, adamw, add_flags, draw, how_adamw, measured, read_bytes, train_step
from torch_llama import LLAMA, Llama

MIB = 1024 * 1024


class MasterWeights:
    """The model in BF16, the optimizer on weights in FP32: as Ladder's chapter 05 keeps them."""

    def __init__(self, model, **how):
        self.high = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters()]
        self.low = list(model.bfloat16().parameters())
        self.adamw = adamw(self.high, 1e-3, (0.9, 0.95), **how)

    def zero_grad(self, set_to_none=True):
        for p in self.low:
            p.grad = None if set_to_none or p.grad is None else p.grad.zero_()

    @torch.no_grad()
    def step(self):
        for high in self.high:
            high.grad = torch.empty_like(high)
        torch._foreach_copy_([high.grad for high in self.high], [low.grad for low in self.low])
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        torch._foreach_copy_(self.low, self.high)


class Run:
    """A model in training."""

    def __init__(self, args, text):
        self.args, self.text = args, text
        self.autocast = args.precision == "bf16" and args.weights == "fp32"
        torch.manual_seed(1)
        core = ATTENTION[args.attention]
        model = Llama(LLAMA[args.model], core) if args.model in LLAMA else Gpt(GPT2[args.model], core)
        model = model.to(args.device)
        how = how_adamw(args)
        self.optimizer = (MasterWeights(model, **how) if args.weights == "master" else
                          adamw(model.parameters(), 1e-3, (0.9, 0.95), **how))
        self.model = torch.compile(model) if args.compile else model

    def step(self):
        """Milliseconds, loss."""
        start = time.perf_counter()
        batch = [t.to(self.args.device) for t in draw(self.text, self.args.batch, self.args.seq_len)]
        loss = train_step(self.model, self.optimizer, batch, bf16=self.autocast,
                          fresh_grads=not self.args.keep_grads)
        return 1000 * (time.perf_counter() - start), loss


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_flags(parser)
    parser.add_argument("--model", choices=[*GPT2, *LLAMA], default="gpt2-124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32",
                        help="bf16: under autocast, or as --weights says")
    parser.add_argument("--weights", choices=["fp32", "master"], default="fp32",
                        help="master: BF16 for the model, FP32 for the optimizer")
    args = parser.parse_args()
    if args.weights == "master" and args.precision != "bf16":
        parser.error("--weights master takes --precision bf16")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU here")
    return args


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    text, _ = read_bytes(args.data)
    if args.device == "cuda":
        torch.set_float32_matmul_precision("highest" if args.precision == "fp32" else "high")
    result = measured(Run(args, text).step, args)
    if args.device == "cuda":
        result["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
    print(json.dumps(result))


if __name__ == "__main__":
    main()
