#!/usr/bin/env python3
"""What a GPU can do at most, measured by PyTorch on it: one JSON object.

`product`: TFLOP/s of an 8192 x 8192 x 8192 product in BF16, of random numbers (zeros take less
power and run faster). `copy`: GB/s from one array of 4 GiB to another, bytes read and bytes written
both counted. Each is the best of several tries of a tenth of a second and more.
"""

import json

import torch

SIDE, COPIED = 8192, 4 << 30


def best_seconds(run, repeats):
    best = float("inf")
    for _ in range(6):  # the first warms up
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e-3 / repeats)
    return best


def main():
    if not torch.cuda.is_available():
        raise SystemExit("gpu_ceilings.py: PyTorch sees no GPU here")
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    product = 2 * SIDE ** 3 / best_seconds(lambda: torch.mm(a, b, out=out), 100)
    x, y = (torch.zeros(COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = 2 * COPIED / best_seconds(lambda: y.copy_(x), 50)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                      "product": product * 1e-12, "copy": copy * 1e-9}))


if __name__ == "__main__":
    main()
