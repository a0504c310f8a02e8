#!/usr/bin/env python3
"""Writes device files of this machine, for `ch23_planner --device`.

    chapters/23_planner/this_machine.py [--rounds 3] [--out runs]

They are machine-fp32.toml for one rank that has both cores, core-fp32.toml for each of two ranks
with a thread of its own, and the same for bf16. Peaks, the rate of the memory and the link between
ranks come from bench_operations and bench_comm. What programs achieve of them comes from the runs
of CALIBRATION. The time of a run is a sum over four resources: an amount, which the planner gives
for a device where all else is free, over a rate. The rates are those of least squares.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/cpu/bin"
TEXT = ROOT / "runs/bible.txt"
CORES = 2
LINK_BYTES = 8 << 20  # of an all-reduce: about a block of the model `small`
PROGRAM = {"fp32": "04_clipping", "bf16": "05_mixed_precision"}
GPT = "--model gpt2-124m --vocab 256"
# They differ in what takes most of the time: products, kernels in the cache, attention, or the
# optimizer, whose states no cache holds.
CALIBRATION = [
    f"{GPT} --layers 3 --channels 512 --heads 8 --seq-len 128 --batch 8 --micro-batch 8",
    f"{GPT} --layers 3 --channels 320 --heads 5 --seq-len 192 --batch 4 --micro-batch 4",
    f"{GPT} --layers 4 --channels 128 --heads 4 --seq-len 64 --batch 32 --micro-batch 32",
    f"{GPT} --layers 3 --channels 256 --heads 4 --seq-len 1024 --batch 1 --micro-batch 1",
    f"{GPT} --layers 3 --channels 256 --heads 8 --seq-len 512 --batch 2 --micro-batch 2",
    "--model gpt2-124m --layers 1 --channels 512 --heads 8 --seq-len 64 --batch 2 --micro-batch 2",
    "--model llama-tiny --layers 3 --channels 256 --heads 8 --seq-len 256 --batch 4 --micro-batch 4",
]
ALONE = "--gpus 1 --tp 1 --pp 1 --cp 1 --dp 1 --zero 0 --recompute none"
FREE = 1e9  # TFLOP/s or GB/s of what takes no time


# ---- programs -----------------------------------------------------------------------------------


def real_time(command):
    """The command at a priority above that of ordinary programs, if this user may."""
    may = subprocess.run(["chrt", "-f", "20", "true"], capture_output=True).returncode == 0
    return ["chrt", "-f", "20", *command] if may else command


def output_of(program, *words):
    command = real_time([str(BIN / program), *map(str, words)])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def report_of(chapter, flags):
    """The --report of a chapter's program."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        output_of(f"ch{chapter}", *flags.split(), "--report", report)
        return json.loads(report.read_text())


def ran(chapter, flags, steps):
    """The --report of a training run, on a text so short that validation is short."""
    short = ROOT / "runs/short.txt"
    short.write_bytes(TEXT.read_bytes()[:40_000])
    return report_of(chapter, f"{flags} --steps {steps} --data {short} --quiet")


def planned(flags, fields):
    """The planner's --report of the only layout that `flags` leave, on a device of these fields."""
    with tempfile.TemporaryDirectory() as folder:
        device = Path(folder, "device.toml")
        device.write_text(toml("this machine", fields))
        return report_of("23_planner", f"{flags} --device {device}")


def memory_bytes():
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    return 1024 * int(line.split()[1])


# ---- what bench measures ------------------------------------------------------------------------


def ceilings():
    """Of all cores, in thousand millions a second, as bench_operations names them."""
    return json.loads(output_of("bench_operations", "--ceilings", "--threads", CORES))


def link():
    """GB/s that each rank sends in an all-reduce, and microseconds of one message."""
    return link_of(output_of("bench_comm", "--ranks", CORES, "--operation", "all_reduce",
                             "--reduction", "halving", "--bytes", f"64,{LINK_BYTES}"))


def link_of(text):
    """The same, of the table that bench_comm prints: a small all-reduce, two messages, and a large
    one."""
    rows = [[word.strip() for word in row.strip("| ").split("|")] for row in text.splitlines()]
    head = next(row for row in rows if "bus GB/s" in row)
    small, large = (dict(zip(head, row)) for row in rows[-2:])
    return {"rate": float(large["bus GB/s"]), "microseconds": float(small["us"]) / 2}


# ---- what programs achieve ----------------------------------------------------------------------


def toml(name, fields):
    """The text of a device file; `fields` maps "section.key" to a number."""
    lines, last = [f'name = "{name}"'], None
    for field, value in fields.items():
        section, key = field.split(".")
        if section != last:
            lines.append(f"\n[{section}]")
        last = section
        lines.append(f"{key} = {value:.6g}")
    return "\n".join(lines) + "\n"


# A device file has all these fields. Here nothing takes time.
FIELDS = {"peak.fp32": FREE, "peak.bf16": FREE, "peak.fp8": 0, "memory.gigabytes": FREE,
          "memory.gigabytes_per_second": FREE, "cache.megabytes": 32,
          "cache.gigabytes_per_second": FREE, "node.devices": CORES, "node.gigabytes_per_second": FREE,
          "node.microseconds": 0, "network.gigabytes_per_second": FREE, "network.microseconds": 0,
          "power.watts": 0, "achieved.products": 1, "achieved.attention": 1, "achieved.memory": 1,
          "achieved.links": 1, "achieved.overlap": 0, "achieved.usable": 1}


def amounts(flags):
    """TFLOP of products and of attention, GB in the cache and in the memory, of one step."""
    seconds = lambda slow: planned(flags, FIELDS | slow)["layouts"][0]["seconds"]
    computed = seconds({"peak.fp32": 1, "peak.bf16": 1})
    return [computed["products"] + computed["head"], computed["attention"],
            sum(seconds({"cache.gigabytes_per_second": 1}).values()),
            sum(seconds({"memory.gigabytes_per_second": 1}).values())]


def least_squares(rows, seconds, least):
    """The x of least relative squares with rows x = seconds and no x below its `least`."""
    rows = [[value / s for value in row] for row, s in zip(rows, seconds)]
    x = list(least)
    for _ in range(5000):  # one unknown at a time: the sum of squares only falls
        for k in range(len(x)):
            others = [sum(r[j] * x[j] for j in range(len(x)) if j != k) for r in rows]
            best = sum(r[k] * (1 - o) for r, o in zip(rows, others)) / sum(r[k]**2 for r in rows)
            x[k] = max(least[k], best)
    return x


def fitted(precision, found, taken, ceiling, wire, ranks):
    """The fields of a device that is one of `ranks` equal parts of this machine.
    @param found amounts of the calibration runs; @param taken their seconds"""
    gemm = ceiling["gemm" if precision == "fp32" else "gemm_bf16"] / 1e3
    peak = ceiling["fma"] / 1e3 * gemm / (ceiling["gemm"] / 1e3)
    # No product is faster than a large square one, no attention than products, and nothing moves
    # more bytes than a copy.
    least = [1 / gemm, 1 / gemm, 1e-6, 1 / ceiling["copy"]]
    products, attention, cache, memory = (1 / x for x in least_squares(found, taken, least))
    return FIELDS | {
        "peak.fp32": ceiling["fma"] / 1e3 / ranks, "peak.bf16": peak / ranks,
        "memory.gigabytes": memory_bytes() / 1e9 / ranks,
        "memory.gigabytes_per_second": ceiling["copy"] / ranks,
        "cache.gigabytes_per_second": cache / ranks,
        "node.gigabytes_per_second": wire["rate"], "node.microseconds": wire["microseconds"],
        "achieved.products": products / peak, "achieved.attention": attention / peak,
        "achieved.memory": memory / ceiling["copy"]}


def medians(dicts):
    return {key: statistics.median(d[key] for d in dicts) for key, value in dicts[0].items()
            if isinstance(value, (int, float))}


class Machine:
    """Measurements that take turns, and the device files that follow from their medians."""

    def __init__(self):
        self.ceilings, self.links = [], []
        self.seconds = {(precision, flags): [] for precision in PROGRAM for flags in CALIBRATION}

    def measure(self):
        """One round."""
        self.ceilings.append(ceilings())
        self.links.append(link())
        for (precision, flags), seconds in self.seconds.items():
            narrow = "" if precision == "fp32" else f"--precision {precision}"
            report = ran(PROGRAM[precision], f"{flags} {narrow} --threads {CORES}", 8)
            seconds.append(report["step_ms_median"] / 1e3)

    def fields(self, precision, ranks):
        """Of one of so many equal parts of this machine."""
        found = [amounts(f"{flags} --precision {precision} {ALONE}") for flags in CALIBRATION]
        taken = [statistics.median(self.seconds[precision, flags]) for flags in CALIBRATION]
        return fitted(precision, found, taken, medians(self.ceilings), medians(self.links), ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "runs")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not TEXT.exists():
        parser.error(f"{TEXT} is missing: scripts/text.sh {TEXT} makes it")
    machine = Machine()
    for _ in range(args.rounds):
        machine.measure()
    for precision in PROGRAM:
        for name, ranks in (("machine", 1), ("core", CORES)):
            path = args.out / f"{name}-{precision}.toml"
            path.write_text(toml(f"{name}, {precision}", machine.fields(precision, ranks)))
            print(path)


if __name__ == "__main__":
    main()
