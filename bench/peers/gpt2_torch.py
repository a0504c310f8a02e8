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
import statistics
import time

import torch

from torch_gpt import ATTENTION, GPT2, Gpt, adamw, draw, read_bytes
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
        how = {name: True for name in ["foreach", "fused"] if getattr(args, name)}
        self.optimizer = (MasterWeights(model, **how) if args.weights == "master" else
                          adamw(model.parameters(), 1e-3, (0.9, 0.95), **how))
        self.model = torch.compile(model) if args.compile else model

    def step(self):
        """Milliseconds, loss."""
        start = time.perf_counter()
        batch = [t.to(self.args.device) for t in draw(self.text, self.args.batch, self.args.seq_len)]
        self.optimizer.zero_grad(set_to_none=not self.args.keep_grads)
        with torch.autocast(self.args.device, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.model(*batch)
        loss.backward()
        self.optimizer.step()
        loss = loss.item()  # waits for a GPU
        return 1000 * (time.perf_counter() - start), loss


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="file whose bytes are tokens")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=0, help="steps before those that count")
    parser.add_argument("--batch", type=int, default=4, help="sequences, over all ranks")
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--attention", choices=ATTENTION, default="masked")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--foreach", action="store_true", help="AdamW over all tensors at once")
    parser.add_argument("--fused", action="store_true", help="AdamW in one kernel")
    parser.add_argument("--keep-grads", action="store_true",
                        help="zero gradients and add, instead of new ones each step")
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
    if args.device == "cuda":
        torch.set_float32_matmul_precision("highest" if args.precision == "fp32" else "high")
    run = Run(args, read_bytes(args.data))
    step_ms, losses = zip(*[run.step() for _ in range(args.warmup + args.steps)][args.warmup:])
    result = {"torch": torch.__version__, "batch": args.batch, "step_ms_median": statistics.median(step_ms),
              "step_ms": step_ms, "final_loss": losses[-1]}
    if args.device == "cuda":
        result["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
    print(json.dumps(result))


if __name__ == "__main__":
    main()
