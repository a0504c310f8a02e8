"""The measured tables of chapter 23: seconds and bytes of runs of other chapters beside the planner's."""

import importlib.util
import statistics
from pathlib import Path

from measure import long_table, table


def sibling(name):
    """A script of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).resolve().parents[1] / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


here = sibling("this_machine")

ROUNDS = 5
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


class Judged:
    """A run, and what the planner says of it."""

    def __init__(self, chapter, both, own, layout):
        self.chapter = chapter
        self.precision = "bf16" if "--precision bf16" in both else "fp32"
        self.ranks = 1 if layout == ONE else 2
        threads = f"--threads {here.CORES // self.ranks}"
        self.flags = " ".join(words for words in (both, own, threads) if words)
        defaults = [flag for flag in ("--recompute none", "--precision fp32") if flag.split()[0] not in both]
        self.plan = " ".join([both, *defaults, threads, layout])
        self.ms, self.bytes = [], 0

    def measure(self):
        report = here.ran(self.chapter, self.flags, 6)
        self.ms.append(report["step_ms_median"])
        self.bytes = most_bytes(report)

    def row(self, fields):
        """The cells of the table, and the error of the time."""
        plan = here.planned(self.plan, fields)
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


def steps():
    machine, runs = here.Machine(), [Judged(*row) for row in JUDGED]
    for _ in range(ROUNDS):
        machine.measure()
        for run in runs:
            run.measure()
    devices = {(precision, ranks): machine.fields(precision, ranks)
               for precision in here.PROGRAM for ranks in (1, 2)}
    rows = [run.row(devices[run.precision, run.ranks]) for run in runs]
    errors = [error for _, error in rows]
    head = ["chapter and flags", "predicted, ms", "measured, ms", "error", "predicted, bytes",
            "counted − predicted, bytes"]
    return [
        f"**Steps on this machine.** {len(rows)} runs and the calibration took turns in {ROUNDS} rounds, "
        "at real-time priority; a time is the median of the rounds. The device files:",
        device_table(devices),
        f"The runs. The median error of a time is {statistics.median(errors):.1%}, the largest is "
        f"{max(errors):.1%}. Three of them; [all](../../docs/results/chapter_23.md):",
        long_table("Steps on this machine", head, [cells for cells, _ in rows], (1, 9, 10))]


def measure():
    return "\n\n".join(steps())
