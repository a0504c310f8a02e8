#!/usr/bin/env python3
"""Where hybrid sharding pays: chapter 30 on two machines of two ranks, with links of several speeds.

    cmake --build --preset cpu --target ch30_hsdp
    python3 bench/two_machines.py
    python3 bench/two_machines.py --torch build/peers/bin/python --rates 1gbit

Two network namespaces with host names of their own are the machines. Ranks of one machine share
memory. What leaves a machine passes a token bucket of --rates, each direction by itself. The splits
of 4 ranks take turns: 1 shard group (chapter 10), 2 (a machine each), 4 (no shards).
--torch measures PyTorch's fully_shard over gloo beside them. Needs root and iproute2.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from ranks import ROOT, data_file, environment, in_turns, medians, table
from results import write_section

HOSTS, EACH = ("a", "b"), 2
RANKS = EACH * len(HOSTS)
SPLITS = (1, 2, 4)  # replicas
MICRO_STEPS = (1, 4)
MODEL, BATCH, SEQ_LEN = "small", 8, 128
PAGE = ROOT / "docs/results/two_machines.md"
PEER = Path(__file__).parent / "peers/fsdp_torch.py"
# on HOST COMMAND...: with that machine's network and name, as a remote shell.
ON = """host=$1; shift
exec ip netns exec "$NET$host" unshare -u bash -c 'hostname "$0" && eval "$@"' "$host" "$@"
"""


class Machines:
    """The two namespaces and the link between them, while the block lasts."""

    def __init__(self):
        self.net = f"l{os.getpid()}"
        self.folder = tempfile.TemporaryDirectory()
        self.shell = Path(self.folder.name) / "on.sh"
        self.shell.write_text(ON)

    def ip(self, words):
        subprocess.run(f"ip {words}", shell=True, check=True)

    def __enter__(self):
        for host in HOSTS:
            self.ip(f"netns add {self.net}{host}")
        self.ip(f"-n {self.net}a link add data type veth peer name data netns {self.net}b")
        for number, host in enumerate(HOSTS, 1):
            self.ip(f"-n {self.net}{host} addr add 10.77.1.{number}/24 dev data")
            self.ip(f"-n {self.net}{host} link set data up")
            self.ip(f"-n {self.net}{host} link set lo up")
        return self

    def __exit__(self, *_):
        for host in HOSTS:
            subprocess.run(f"ip netns pids {self.net}{host} | xargs -r kill -KILL; "
                           f"ip netns del {self.net}{host}", shell=True, check=False)
        self.folder.cleanup()

    def shape(self, rate):
        for host in HOSTS:
            subprocess.run(f"tc -n {self.net}{host} qdisc replace dev data root tbf rate {rate} "
                           "burst 512kb latency 100ms", shell=True, check=True)

    def start(self, host, command):
        return subprocess.Popen(["bash", self.shell, host, command], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment(NET=self.net))

    def mpirun(self, ranks, places, command):
        """Runs a command on `ranks` ranks; `places` are mpirun's flags that say which lies where."""
        finished(self.start("a", f"mpirun -n {ranks} {places} --bind-to none --mca plm rsh --mca plm_rsh_agent "
                            f"'bash {self.shell}' --mca btl vader,tcp,self --mca mpi_yield_when_idle 1 "
                            f"--mca oob_tcp_if_include data --mca btl_tcp_if_include data {command}"))

    def sent_a_step(self, run):
        """Bytes a step that machine a sends to b, with what TCP adds: the mean of the second and third step.
        run(steps) takes so many."""
        sent = []
        for steps in (1, 3):
            before = self.sent()
            run(steps)
            sent.append(self.sent() - before)
        return (sent[1] - sent[0]) / 2

    def sent(self):
        """Bytes that machine a has sent to b so far."""
        found = subprocess.run(["ip", "-n", f"{self.net}a", "-s", "-j", "link", "show", "data"],
                               check=True, capture_output=True, text=True).stdout
        return json.loads(found)[0]["stats64"]["tx"]["bytes"]


def finished(process):
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"two_machines.py: exit status {process.returncode}: {err.strip()[-500:]}")
    return out


def ladder(machines, args, data, replicas, GA, steps=None):
    """The report of a run."""
    report = Path(machines.folder.name) / "report.json"
    machines.mpirun(RANKS, f"--host a:{EACH},b:{EACH}",
                    f"{ROOT}/build/cpu/bin/ch30_hsdp --data {data} --model {MODEL} --batch {BATCH * GA} "
                    f"--micro-batch {BATCH // RANKS} --seq-len {SEQ_LEN} --replicas {replicas} --threads 1 "
                    f"--steps {steps or args.steps} --quiet --report {report}")
    return json.loads(report.read_text())


def torch(machines, args, data, replicas, GA):
    """The same in PyTorch, a process for each rank."""
    flags = (f"--data {data} --batch {BATCH * GA} --micro-batch {BATCH // RANKS} --seq-len {SEQ_LEN} "
             f"--replicas {replicas} --steps {args.steps}")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [machines.start(host, f"env MASTER_ADDR=10.77.1.1 MASTER_PORT=29500 WORLD_SIZE={RANKS} "
                                f"GLOO_SOCKET_IFNAME=data RANK={EACH * number + i} OMP_NUM_THREADS=1 "
                                f"TORCHINDUCTOR_CACHE_DIR={folder} {args.torch} {PEER} {flags}")
                 for number, host in enumerate(HOSTS) for i in range(EACH)]
        return [json.loads(finished(rank)) for rank in ranks][0]


def measure(machines, args, data):
    """{(rate, GA): {name: [ms a step, of each round]}}"""
    times = {}
    for rate in args.rates:
        machines.shape(rate)
        for GA in MICRO_STEPS:
            ways = {f"{R} shard group{'s' * (R > 1)}": (ladder, R) for R in SPLITS}
            if args.torch:
                ways.update({f"PyTorch, {R} shard group{'s' * (R > 1)}": (torch, R) for R in SPLITS[:2]})
            print(f"{rate}, {GA} micro-steps")
            times[rate, GA] = in_turns(args.rounds, {
                name: lambda how=how, R=R, GA=GA: how(machines, args, data, R, GA)["step_ms_median"]
                for name, (how, R) in ways.items()})
    return times


def crossing(extra, replicas):
    """Bytes a step that machine a sends to b. By recursive halving each of 4 ranks sends 2/3 of its
    bytes at distance 1, to the other rank of its machine, and 1/3 at distance 2. Two replicas are on
    two machines."""
    inside, across = (extra[f"traffic_{kind}"]["predicted"] for kind in ("inside", "across"))
    return EACH * {1: inside / 3, 2: across, 4: across / 3}[replicas]


def megabits(rate):
    return float(rate.removesuffix("mbit").removesuffix("gbit")) * (1000 if "gbit" in rate else 1)


def body(args, alone, links, times):
    """links: {(replicas, GA): (bytes by the formula, counted)}"""
    split = [f"{R} shard group{'s' * (R > 1)}" for R in SPLITS]
    names = list(next(iter(times.values())))
    bytes_ = [[GA, *(f"{1e-6 * links[R, GA][0]:.1f} / {1e-6 * links[R, GA][1]:.1f}" for R in SPLITS)]
              for GA in MICRO_STEPS]
    rows = []
    for (rate, GA), found in times.items():
        wire = [f"{links[R, GA][0] * 8e-3 / megabits(rate):.0f}" for R in SPLITS]
        rows.append([rate, GA, " / ".join(wire), *(f"{ms:.0f}" for ms in medians(found).values())])
    return "\n".join([
        f"`{MODEL}`, {BATCH} sequences of {SEQ_LEN} tokens a micro-step over {RANKS} ranks of 1 thread, AdamW, "
        "FP32. MB that leave a machine in a step, by the formula / counted by the link with what TCP adds:", "",
        table(["micro-steps", *split], bytes_), "",
        f"Milliseconds of a step, medians of {args.rounds} rounds. On a link that nothing slows a step of one "
        f"micro-step with 2 shard groups takes {alone:.0f} ms.", "",
        table(["link", "micro-steps", "ms on the link", *names], rows)])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", type=lambda text: text.split(","), default=["4gbit", "1gbit", "250mbit"])
    parser.add_argument("--steps", type=int, default=5, help="of a run; the median counts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", help="a Python with today's PyTorch: measured, too")
    parser.add_argument("--write", action="store_true", help=f"put the result into {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("network namespaces with a link between them want root")
    return args


def main():
    args = parse_args()
    with Machines() as machines, tempfile.TemporaryDirectory() as folder:
        data = data_file(folder, BATCH * max(MICRO_STEPS), SEQ_LEN)
        alone = statistics.median(ladder(machines, args, data, 2, 1)["step_ms_median"]
                                  for _ in range(args.rounds))
        links = {(R, GA): (crossing(ladder(machines, args, data, R, GA, 1)["extra"], R),
                           machines.sent_a_step(lambda steps, R=R, GA=GA: ladder(machines, args, data, R, GA, steps)))
                 for R in SPLITS for GA in MICRO_STEPS}
        text = body(args, alone, links, measure(machines, args, data))
    print(f"\n{text}")
    if args.write:
        write_section(PAGE, "hsdp", "Hybrid sharding on two machines", text)


if __name__ == "__main__":
    main()
