#!/usr/bin/env python3
"""GPT-2, or LLaMA's block in its sizes, trained in PyTorch: a peer for the time and memory of a step.

    build/peers/bin/python bench/peers/gpt2_torch.py --data FILE --batch 4 --seq-len 64 --steps 5
    build/peers/bin/python bench/peers/gpt2_torch.py --data FILE --device cuda --compile --fused \\
        --model gpt2-774m --batch 32,16,8 --seq-len 1024 --precision bf16 --attention library

The head is not tied, the vocabulary is 50,304, the optimizer AdamW: as in Ladder. A byte of the
file is a token. What is measured is printed as one JSON object; bench/peers/whole_step.py finds
the fastest settings on a CPU and compares, bench/peers/gpu_step.py does on a GPU.

Timed is the whole step, from drawing the batch to the loss on the host; the median counts. Of
several --batch the largest that the GPU has memory for is taken.
"""

import argparse
import gc
import json
import statistics
import time

import torch

from torch_gpt import ATTENTION, GPT2, Gpt, adamw, draw, read_bytes, train_step
from torch_llama import LLAMA, Llama

MIB = 1024 * 1024


def copy_all(out, inp):
    """Tensor by tensor in older versions; in few kernels where PyTorch knows how."""
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(out, inp)
    else:
        for to, of in zip(out, inp):
            to.copy_(of)


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
        copy_all([high.grad for high in self.high], [low.grad for low in self.low])
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        copy_all(self.low, self.high)


class Run:
    """A model in training, at one batch size."""

    def __init__(self, args, text, batch, compiled):
        self.args, self.text, self.batch = args, text, batch
        self.autocast = args.precision == "bf16" and args.weights == "fp32"
        torch.manual_seed(1)
        core = ATTENTION[args.attention]
        model = Llama(LLAMA[args.model], core) if args.model in LLAMA else Gpt(GPT2[args.model], core)
        model = model.to(args.device)
        how = {name: True for name in ["foreach", "fused"] if getattr(args, name)}
        self.optimizer = (MasterWeights(model, **how) if args.weights == "master" else
                          adamw(model.parameters(), 1e-3, (0.9, 0.95), **how))
        self.model = torch.compile(model) if compiled else model

    def step(self):
        """Milliseconds, loss."""
        start = time.perf_counter()
        batch = [t.to(self.args.device) for t in draw(self.text, self.batch, self.args.seq_len)]
        loss = train_step(self.model, self.optimizer, batch, bf16=self.autocast,
                          fresh_grads=not self.args.keep_grads)
        return 1000 * (time.perf_counter() - start), loss


def measured(args, text, batch):
    run = Run(args, text, batch, args.compile)
    for _ in range(args.warmup):
        run.step()
    step_ms, losses = zip(*(run.step() for _ in range(args.steps)))
    result = {"torch": torch.__version__, "batch": batch,
              "step_ms_median": statistics.median(step_ms), "step_ms": step_ms,
              "final_loss": losses[-1]}
    if args.device == "cuda":
        result["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
    return result


def release():
    """Gives back what a run that found no memory still holds."""
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def first_that_fits(batches, attempt):
    """Index of the first batch for which attempt(batch) finds memory, and what it returns."""
    for i, batch in enumerate(batches):
        try:
            return i, attempt(batch)
        except torch.cuda.OutOfMemoryError:
            pass  # only when this block is left are the tensors of the attempt let go
        finally:
            release()
    raise SystemExit(f"gpt2_torch.py: no memory for a batch of {batches[-1]}")


def measured_on_gpu(args, text):
    """Compiling takes a minute, a step without it seconds; and it never takes more memory. So the
    search is made without, then the next larger batch is tried with it."""
    if args.compile and len(args.batch) > 1:
        i, _ = first_that_fits(args.batch, lambda batch: Run(args, text, batch, False).step())
        args.batch = args.batch[max(0, i - 1):]
    return first_that_fits(args.batch, lambda batch: measured(args, text, batch))[1]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="file whose bytes are tokens")
    parser.add_argument("--model", choices=[*GPT2, *LLAMA], default="gpt2-124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=0, help="steps before those that count")
    parser.add_argument("--batch", type=lambda text: [int(b) for b in text.split(",")],
                        default=[4], help="sequences; several, falling: the first that fits a GPU")
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32",
                        help="bf16: under autocast, or as --weights says")
    parser.add_argument("--weights", choices=["fp32", "master"], default="fp32",
                        help="master: BF16 for the model, FP32 for the optimizer")
    parser.add_argument("--attention", choices=ATTENTION, default="masked")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--foreach", action="store_true", help="AdamW over all tensors at once")
    parser.add_argument("--fused", action="store_true", help="AdamW in one kernel")
    parser.add_argument("--keep-grads", action="store_true",
                        help="zero gradients and add, instead of new ones each step")
    args = parser.parse_args()
    if args.weights == "master" and args.precision != "bf16":
        parser.error("--weights master takes --precision bf16")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU here")
    if args.device == "cpu" and len(args.batch) != 1:
        parser.error("--device cpu takes one --batch")
    return args


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    text, _ = read_bytes(args.data)
    if args.device == "cuda":
        torch.set_float32_matmul_precision("highest" if args.precision == "fp32" else "high")
        result = measured_on_gpu(args, text)
    else:
        result = measured(args, text, args.batch[0])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
