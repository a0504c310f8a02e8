"""The measured tables of chapter 23: seconds and bytes of runs of other chapters beside the planner's.

The planner needs a file of this machine. Peaks, the rate of the memory and the link between ranks come
from bench_operations and bench_comm. What programs achieve of them comes from the runs of CALIBRATION.
The time of a run is a sum over four resources: an amount, which the planner gives for a device where all
else is free, over a rate. The rates are those of least squares.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path

from measure import long_table, output_of, run, short_text, table

ROUNDS = 5
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
FREE = 1e9  # TFLOP/s or GB/s of what takes no time
# A device file has all these fields. Here nothing takes time.
FIELDS = {"peak.fp32": FREE, "peak.bf16": FREE, "peak.fp8": 0, "memory.gigabytes": FREE,
          "memory.gigabytes_per_second": FREE, "cache.megabytes": 32,
          "cache.gigabytes_per_second": FREE, "node.devices": CORES, "node.gigabytes_per_second": FREE,
          "node.microseconds": 0, "network.gigabytes_per_second": FREE, "network.microseconds": 0,
          "power.watts": 0, "achieved.products": 1, "achieved.attention": 1, "achieved.memory": 1,
          "achieved.links": 1, "achieved.overlap": 0, "achieved.usable": 1}
ONE, DATA = "--gpus 1 --tp 1 --pp 1 --cp 1 --dp 1 --zero 0", "--gpus 2 --tp 1 --pp 1 --cp 1 --dp 2"
STAGES = "--gpus 2 --tp 1 --pp 2 --cp 1 --dp 1 --zero 0"
SHARED = "--gpus 2 --tp 1 --pp 1 --cp 2 --dp 1 --zero 2"
LONG = "--model gpt2-124m --vocab 256 --layers 4 --channels 256 --heads 8 --seq-len 1024"
# Chapter, flags of both programs, flags of the chapter alone, the layout in the planner's words.
JUDGED = [
    ("04_clipping", "--model tiny --batch 24 --micro-batch 24", "", ONE),
    ("04_clipping", "--model small --batch 2 --micro-batch 2", "", ONE),
    ("04_clipping", "--model gpt2-124m --layers 4 --seq-len 64 --batch 4 --micro-batch 4", "", ONE),
    ("05_mixed_precision", "--model small --batch 4 --micro-batch 4 --precision bf16", "", ONE),
    ("06_checkpointing", "--model small --batch 2 --micro-batch 2 --recompute full", "", ONE),
    ("06_checkpointing", f"{LONG} --batch 1 --micro-batch 1 --recompute selective", "", ONE),
    ("07_ddp", "--model small --batch 4 --micro-batch 2", "--ranks 2", f"{DATA} --zero 0"),
    ("08_zero1", "--model small --batch 4 --micro-batch 1", "--ranks 2", f"{DATA} --zero 1"),
    ("09_zero2", "--model small --batch 4 --micro-batch 1", "--ranks 2", f"{DATA} --zero 2"),
    ("10_zero3", "--model small --batch 4 --micro-batch 2", "--ranks 2", f"{DATA} --zero 3"),
    ("11_tensor_parallel", "--model small --batch 2 --micro-batch 2", "--tp 2",
     "--gpus 2 --tp 2 --pp 1 --cp 1 --dp 1 --zero 0 --no-sequence-parallel"),
    ("12_pipeline_parallel", "--model small --batch 4 --micro-batch 1", "--pp 2", f"{STAGES} --schedule 1f1b"),
    ("12_pipeline_parallel", "--model small --batch 4 --micro-batch 1", "--pp 2 --pipeline zb-h1",
     f"{STAGES} --schedule zb-h1"),
    ("19_llama", "--model llama-tiny --layers 6 --channels 384 --heads 6 --batch 16 --micro-batch 16", "",
     ONE),
    ("20_context_parallel", f"{LONG} --batch 1 --micro-batch 1", "--cp 2 --context gather",
     f"{SHARED} --context gather"),
    ("20_context_parallel", f"{LONG} --batch 1 --micro-batch 1", "--cp 2 --context ring",
     f"{SHARED} --context ring"),
    ("21_moe", "--model moe-tiny --batch 16 --micro-batch 16", "", ONE),
]


# ---- programs -----------------------------------------------------------------------------------


def planned(flags, fields):
    """The planner's --report of the only layout that `flags` leave, on a device of these fields."""
    with tempfile.TemporaryDirectory() as folder:
        device, report = Path(folder, "device.toml"), Path(folder, "report.json")
        device.write_text(toml(fields))
        output_of("ch23_planner", *flags.split(), "--device", device, "--report", report)
        return json.loads(report.read_text())


def toml(fields):
    """The text of a device file; `fields` maps "section.key" to a number."""
    return "".join(['name = "this machine"\n', *(f"{field} = {value:.6g}\n" for field, value in fields.items())])


def link_of(text):
    """GB/s that each rank sends in an all-reduce, and microseconds of one message, of the table that
    bench_comm prints: a small all-reduce, two messages, and a large one."""
    rows = [[word.strip() for word in row.strip("| ").split("|")] for row in text.splitlines()]
    head = next(row for row in rows if "bus GB/s" in row)
    small, large = (dict(zip(head, row)) for row in rows[-2:])
    return {"rate": float(large["bus GB/s"]), "microseconds": float(small["us"]) / 2}


# ---- what programs achieve ----------------------------------------------------------------------


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
        "memory.gigabytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9 / ranks,
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
        self.ceilings.append(json.loads(output_of("bench_operations", "--ceilings", "--threads", CORES)))
        self.links.append(link_of(output_of("bench_comm", "--ranks", CORES, "--operation", "all_reduce", "--reduction",
                                            "halving", "--bytes", f"64,{LINK_BYTES}")))
        for (precision, flags), seconds in self.seconds.items():
            narrow = "" if precision == "fp32" else f"--precision {precision}"
            done = run(PROGRAM[precision], f"{flags} {narrow} --threads {CORES} --steps 8", short_text(8, 500))
            seconds.append(done.report["step_ms_median"] / 1e3)

    def fields(self, precision, ranks):
        """Of one of so many equal parts of this machine."""
        found = [amounts(f"{flags} --precision {precision} --recompute none {ONE}") for flags in CALIBRATION]
        taken = [statistics.median(self.seconds[precision, flags]) for flags in CALIBRATION]
        return fitted(precision, found, taken, medians(self.ceilings), medians(self.links), ranks)


class Judged:
    """A run, and what the planner says of it."""

    def __init__(self, chapter, both, own, layout):
        self.chapter = chapter
        self.precision = "bf16" if "--precision bf16" in both else "fp32"
        self.ranks = 1 if layout == ONE else 2
        threads = f"--threads {CORES // self.ranks}"
        self.flags = " ".join(words for words in (both, own, threads) if words)
        defaults = [flag for flag in ("--recompute none", "--precision fp32") if flag.split()[0] not in both]
        self.plan = " ".join([both, *defaults, threads, layout])
        self.ms, self.bytes = [], 0

    def measure(self):
        report = run(self.chapter, f"{self.flags} --steps 6", short_text(8, 500)).report
        self.ms.append(report["step_ms_median"])
        self.bytes = most_bytes(report)

    def row(self, fields):
        """The cells of the table, and the error of the time."""
        plan = planned(self.plan, fields)
        ms, got = 1e3 * plan["layouts"][0]["step_seconds"], statistics.median(self.ms)
        ladder = sum(plan["memory"]["ladder"]["bytes"].values())
        error = ms / got - 1
        cells = [f"{self.chapter[:2]} `{self.flags}`", f"{ms:.1f}", f"{got:.1f}", f"{error:+.1%}",
                 f"{ladder:,}", f"{self.bytes - ladder:,}"]
        return cells, abs(error)


def most_bytes(report):
    """Counted bytes of the rank that takes most."""
    return max(sum(category["measured"] for category in rank.values() if isinstance(category, dict))
               for rank in report["memory"])


def device_table(devices):
    """What the device files say: of one rank with both cores, and of one of two."""
    shown = ["peak.fp32", "peak.bf16", "memory.gigabytes_per_second", "cache.gigabytes_per_second",
             "node.gigabytes_per_second", "node.microseconds", "achieved.products", "achieved.attention",
             "achieved.memory"]
    rows = [[f"`{field}`" + ", TFLOP/s" * field.startswith("peak"),
             *(f"{fields[field]:.3g}" for fields in devices.values())] for field in shown]
    return table(["field", *(f"{'machine' if ranks == 1 else 'core'}-{precision}"
                             for precision, ranks in devices)], rows)


def measure():
    machine, judged = Machine(), [Judged(*row) for row in JUDGED]
    for _ in range(ROUNDS):
        for one in (machine, *judged):
            one.measure()
    devices = {(precision, ranks): machine.fields(precision, ranks)
               for precision in PROGRAM for ranks in (1, 2)}
    rows = [one.row(devices[one.precision, one.ranks]) for one in judged]
    errors = [error for _, error in rows]
    head = ["chapter and flags", "predicted, ms", "measured, ms", "error", "predicted, bytes",
            "counted − predicted, bytes"]
    return "\n\n".join([
        f"**Steps on this machine.** {len(rows)} runs and the calibration took turns in {ROUNDS} rounds; a time is "
        "the median of the rounds. The device files:",
        device_table(devices),
        f"The runs. The median error of a time is {statistics.median(errors):.1%}, the largest is "
        f"{max(errors):.1%}. Three of them; [all](../../docs/results/chapter_23.md):",
        long_table("Steps on this machine", head, [cells for cells, _ in rows], (1, 9, 10))])
