#!/usr/bin/env python3
"""Hybrid sharding in PyTorch: one rank of fully_shard on a mesh of replicas and shards, over gloo.

Started once for each rank, with torch.distributed's variables, by bench/two_machines.py. The model
`small`, FP32 on the CPU, AdamW, no clipping. Each block is a unit of its own; gradients are summed
inside a group in each micro-step, and across groups in the last one. Timed is the whole step; one
JSON object is printed.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_gpt import ATTENTION, SMALL, Gpt, adamw, draw, read_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="file whose bytes are tokens")
    parser.add_argument("--batch", type=int, required=True, help="sequences of a step, over all ranks")
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (args.replicas, ranks // args.replicas),
                            mesh_dim_names=("replicate", "shard"))
    if args.replicas == 1:
        mesh = mesh["shard"]
    torch.manual_seed(1)
    model = Gpt(SMALL, ATTENTION["library"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = adamw(model.parameters(), 1e-3, (0.9, 0.95))
    text = read_bytes(args.data)
    torch.manual_seed(1 + rank)  # of the batches
    GA = args.batch // ranks // args.micro_batch
    step_ms = []
    for _ in range(1 + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        for k in range(GA):
            model.set_requires_all_reduce(k + 1 == GA)
            tokens, targets = draw(text, args.micro_batch, args.seq_len)
            (model(tokens, targets) / GA).backward()
        optimizer.step()
        step_ms.append(1000 * (time.perf_counter() - start))
    print(json.dumps({"torch": torch.__version__, "step_ms_median": statistics.median(step_ms[1:])}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
