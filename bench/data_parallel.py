#!/usr/bin/env python3
"""Data-parallel training in the memory of one machine: ranks beside threads, and beside PyTorch.

    cmake --build --preset cpu --target ch07_ddp
    build/peers/bin/python bench/data_parallel.py

One batch of `small`, FP32, AdamW: by one rank with two threads, by two ranks of one thread each
(as threads of one process, and as processes under mpirun), and by PyTorch's
DistributedDataParallel over gloo in two processes of one thread each. All take turns; medians
count. PyTorch is compiled, with its own attention and fused AdamW, unless
--torch names other settings.
"""

import argparse
import tempfile

from ranks import (MPIRUN, RESULTS, ROOT, data_file, in_turns, ladder, medians, ratio, spread,
                   table)
from results import write_section
from whole_step import CHOICES, WARMUP, given_settings, peer

PEER = "ddp_torch.py"
SEQ_LEN = 256  # of `small`
PEER_CHOICES = {
    **{what: hows for what, hows in CHOICES.items() if what != "waiting"},
    "buckets": {"copied": ([], {}), "shared": (["--view"], {}),
                "shared, static graph": (["--view", "--static-graph"], {})},
}
ONE, THREADS, MPI = "one rank, 2 threads", "two ranks, threads", "two ranks, MPI"
TORCH = "PyTorch DDP, gloo, 2 processes"
LAYOUTS = {ONE: (["--threads=2"], []),
           THREADS: (["--ranks=2", "--threads=1"], []),
           MPI: (["--threads=1"], [*MPIRUN, "-n", "2"])}


def run(args, data):
    common = [f"--data={data}", f"--batch={args.batch}"]
    theirs = [*common, f"--warmup={WARMUP}"]
    settings = given_settings(args.torch, PEER_CHOICES)
    flags = [*common, f"--steps={args.steps}"]
    ours = [*flags, "--model=small", *args.flags.split()]

    def step_ms(more, launch):
        return ladder(args.program, [*ours, *more], launch)[0]["step_ms_median"]

    runs = {name: lambda how=how: step_ms(*how) for name, how in LAYOUTS.items()}
    runs[TORCH] = lambda: peer([*theirs, f"--steps={args.steps}"], settings, 1, PEER,
                              PEER_CHOICES).step_ms
    return settings, in_turns(args.rounds, runs)


def body(args, settings, times):
    median = medians(times)
    lines = [[name, f"{median[name]:.0f}", spread(times[name]),
              f"{args.batch * SEQ_LEN / median[name] * 1000:,.0f}",
              f"{ratio(times, ONE, name):.2f}", f"{ratio(times, TORCH, name):.2f}"]
             for name in times]
    chosen = ", ".join(f"{what} {how}" for what, how in settings.items())
    return "\n".join([
        f"`small`, batch {args.batch}, {SEQ_LEN} tokens, AdamW, FP32; chapter 07 with "
        f"`--ddp overlapped --bucket-mb 25`, the default. PyTorch's settings: "
        f"{chosen}.", "",
        table(["", "ms a step, median", f"of {args.rounds} rounds", "tokens/s",
               "to one rank", "to PyTorch"], lines), "",
        "The last columns are speeds, as the median over rounds."])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=ROOT / "build/cpu/bin/ch07_ddp")
    parser.add_argument("--flags", default="", help="more of the program's")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="of a run; the median counts")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--torch", default="", help="settings of PyTorch that differ from the "
                        "first ones, as 'attention=masked,optimizer=foreach'")
    parser.add_argument("--write", action="store_true",
                        help="put the result into docs/results/data_parallel.md")
    return parser.parse_args()


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = body(args, *run(args, data_file(folder, args.batch, SEQ_LEN)))
    print(f"\n{text}")
    if args.write:
        write_section(RESULTS, "shared_memory", "In shared memory", text)


if __name__ == "__main__":
    main()
