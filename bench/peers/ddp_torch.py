#!/usr/bin/env python3
"""Data-parallel training in PyTorch: a peer for the time of a whole step.

    python3 bench/peers/ddp_torch.py --data FILE --ranks 2 --batch 8 --steps 8

The model `small`, FP32 on the CPU, AdamW, no clipping. Ranks are processes that share the batch;
DistributedDataParallel sums their gradients over gloo, in buckets, while backward still computes.
Timed is the whole step, on rank 0; the median is printed as one JSON object.
bench/data_parallel.py finds the fastest settings and compares.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

from torch_gpt import ATTENTION, SMALL, Gpt, adamw, add_flags, draw, how_adamw, measured, read_bytes, train_step


def work(rank, args, meeting):
    torch.set_num_threads(args.threads)
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                world_size=args.ranks)
    torch.manual_seed(1)
    model = Gpt(SMALL, ATTENTION[args.attention])
    optimizer = adamw(model.parameters(), 1e-3, (0.9, 0.95), **how_adamw(args))
    if args.ranks > 1:
        model = DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb,
                                        gradient_as_bucket_view=args.view,
                                        static_graph=args.static_graph)
    if args.compile:
        model = torch.compile(model)
    text, _ = read_bytes(args.data)
    torch.manual_seed(1 + rank)  # of the batches

    def step():
        start = time.perf_counter()
        batch = draw(text, args.batch // args.ranks, SMALL.positions)
        loss = train_step(model, optimizer, batch, fresh_grads=not args.keep_grads)
        return 1000 * (time.perf_counter() - start), loss

    result = measured(step, args)
    if rank == 0:
        print(json.dumps(result))
    if args.ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_flags(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--view", action="store_true", help="gradients lie in the buckets")
    parser.add_argument("--static-graph", action="store_true")
    args = parser.parse_args()
    if args.batch % args.ranks:
        parser.error("--batch must be a multiple of --ranks")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        processes.spawn(work, (args, meeting), nprocs=args.ranks)


if __name__ == "__main__":
    main()
