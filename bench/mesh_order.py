#!/usr/bin/env python3
"""Which axis of a mesh should lie between machines: chapter 33 on two machines of 16 ranks.

    cmake --build --preset cpu --target ch33_mesh
    python3 bench/mesh_order.py [--write]

The machines are two network namespaces (two_machines.py). All five axes have two ranks. In each run
the two ranks of another axis lie on different machines, and the link counts what crosses it. Time is
not measured. Needs root and iproute2.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from ranks import ROOT, data_file, table
from results import write_section
from two_machines import PAGE, Machines

AXES = {"tp": "tensor", "cp": "context", "dp": "shard", "replicas": "replica", "pp": "stage"}  # the fastest first
RANKS = 2**len(AXES)
BATCH, SEQ_LEN = 8, 128
MODEL = f"--model small --layers 2 --seq-len {SEQ_LEN} --batch {BATCH} --micro-batch 1"
MESH = "--tp 2 --cp 2 --replicas 2 --pp 2"


def on_b(rank, axis):
    """Whether the rank is on the second machine, if `axis` lies between the machines."""
    return rank >> list(AXES).index(axis) & 1


def report(machines, data, axis, steps):
    """What the program reports of a run."""
    folder = Path(machines.folder.name)
    hosts, report = folder / "hosts", folder / "report.json"
    hosts.write_text("".join(f"{'ab'[on_b(rank, axis)]}\n" for rank in range(RANKS)))
    machines.mpirun(RANKS, f"--hostfile {hosts} --mca rmaps seq",
                    f"{ROOT}/build/cpu/bin/ch33_mesh --data {data} {MODEL} {MESH} --threads 1 --steps {steps} "
                    f"--quiet --report {report}")
    return json.loads(report.read_text())


def crossing(found, axis):
    """Bytes a step that the first machine sends, by the formula. Context ranks and shards sum gradients
    together, four ranks: by recursive halving 2/3 of the bytes go to the context neighbor, 1/3 to the
    other shard."""
    bytes_ = 0
    for rank, sent in enumerate(found["extra"]["traffic"]):
        if on_b(rank, axis):
            continue
        of = {name: both["predicted"] for name, both in sent.items() if name != "rank"}
        bytes_ += {"cp": of["cp"] + of["dp"] * 2 / 3, "dp": of["dp"] / 3}.get(axis, of[axis])
    return bytes_


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the result into {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("network namespaces with a link between them want root")
    rows = []
    with Machines() as machines, tempfile.TemporaryDirectory() as folder:
        data = data_file(folder, BATCH, SEQ_LEN)
        for axis, name in AXES.items():
            link = machines.sent_a_step(lambda steps, axis=axis: report(machines, data, axis, steps))
            found = report(machines, data, axis, 1)
            rows.append([name, f"{1e-6 * crossing(found, axis):.2f}", f"{1e-6 * link:.2f}"])
            print(*rows[-1], flush=True)
    text = "\n".join([
        f"`{MODEL} {MESH}` on {RANKS} ranks, 16 on each machine. The ranks of one axis lie on different machines, "
        "those of the others on one. MB that a machine sends in a step:", "",
        table(["between machines", "by the formula", "counted by the link, with what TCP adds"], rows)])
    print(f"\n{text}")
    if args.write:
        write_section(PAGE, "mesh", "Which axis lies between machines", text)


if __name__ == "__main__":
    main()
