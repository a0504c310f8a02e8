#!/usr/bin/env python3
"""Attention of others on one GPU, as a table: PyTorch's flash attention and cuDNN's, and FlashAttention.

    python3 bench/peers/gpu_attention.py

Causal, BF16. The shapes are those of build/cuda/bin/bench_attention_ladder, and of `of_128` in bench_cuda.
FlashAttention is flash-attn-4 from PyPI, where it is installed. A call is forward, or forward and
backward; backward is the difference. TFLOP/s count the pairs that the mask leaves, two products forward
and five backward, as Ladder's benchmarks do. The result is the median of rounds of calls in a row.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# Sequences, heads, tokens, channels of a head.
SHAPES = {"64 channels": (32, 12, 1024, 64), "128 channels": (5, 16, 4096, 128)}


def pytorch(backend):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attend


def flash(q, k, v):
    """It has tokens before heads."""
    from flash_attn.cute import flash_attn_func  # pylint: disable=import-error

    out = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)
    return out[0] if isinstance(out, tuple) else out


PEERS = {"flash": pytorch(SDPBackend.FLASH_ATTENTION), "cudnn": pytorch(SDPBackend.CUDNN_ATTENTION),
         "math": pytorch(SDPBackend.MATH), "flash-attn-4": flash}


def seconds(call, device, rounds, calls):
    """Of one call."""
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    times = []
    for _ in range(rounds + 1):  # the first one compiles
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times[1:])


def measure(args, attend, shape):
    """TFLOP/s, forward and backward."""
    B, NH, T, HS = shape
    # As chunks of one product lie, which is how a model has them.
    qkv = torch.randn(B, T, 3 * NH * HS, dtype=torch.bfloat16, device=args.device, requires_grad=True)
    q, k, v = (x.view(B, T, NH, HS).transpose(1, 2) for x in qkv.chunk(3, dim=-1))
    dout = torch.randn_like(attend(q, k, v))
    with torch.no_grad():
        forward = seconds(lambda: attend(q, k, v), args.device, args.rounds, args.calls)
    both = seconds(lambda: torch.autograd.grad(attend(q, k, v), (q, k, v), dout), args.device, args.rounds,
                   args.calls)
    product = 1e-12 * 2 * B * NH * T * (T + 1) / 2 * HS
    return 2 * product / forward, 5 * product / (both - forward)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["flash", "cudnn", "flash-attn-4"])
    parser.add_argument("--tokens", type=int, help="others than those of the shapes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    args = parser.parse_args()
    print(f"| PyTorch {torch.__version__} | shape | forward, TFLOP/s | backward, TFLOP/s |\n|---|---|--:|--:|", flush=True)
    for what, (B, NH, T, HS) in SHAPES.items():
        shape = (B, NH, args.tokens or T, HS)
        for name in args.peers:
            try:
                rates = [f"{rate:.3g}" for rate in measure(args, PEERS[name], shape)]
            except (ImportError, RuntimeError) as error:
                rates = [f"failed: {str(error).strip().splitlines()[0]}", "-"]
            print(f"| {name} | {what}: {' x '.join(map(str, shape))} | {' | '.join(rates)} |", flush=True)


if __name__ == "__main__":
    main()
