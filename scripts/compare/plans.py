"""The rows that share a model among ranks, planned for 7B on 64 GPUs by the program of chapter 23."""

import re
import tomllib
from dataclasses import dataclass

import runs
from rows import Row
from runs import Bytes, RunError

MODEL, GPUS, BATCH = "llama2-7b", 64, 1024
DEVICE = "chapters/23_planner/devices/h100.toml"
# Those whose bytes and seconds chapter 23 knows.
CHAPTERS = {"07_ddp", "08_zero1", "09_zero2", "10_zero3", "11_tensor_parallel", "12_pipeline_parallel",
            "13_3d_parallel", "16_fp8", "20_context_parallel", "30_hsdp"}
MESSAGES = ["tensor", "context", "messages", "data"]  # seconds that a step waits for them


@dataclass
class Plan(Bytes):
    """What the planner says of a row."""

    row: Row
    command: str
    layout: dict
    room: int  # bytes of a device that tensors can have

    @property
    def ranks(self):
        return [self.layout["memory"]]  # of the fullest stage

    @property
    def fits(self):
        return self.peak <= self.room

    @property
    def seconds(self):
        return self.layout["step_seconds"]

    def share(self, *terms):
        """The share that these terms have of the seconds of a step."""
        return sum(self.layout["seconds"][term] for term in terms) / self.seconds


def flags_of_plan(row, device):
    """Flags of the planner: tensor, context and pipeline ranks are the row's, and all other GPUs share the batch."""
    tp, cp, pp = row.degree("--tp"), row.degree("--cp"), row.degree("--pp")
    zero = max((stage for stage, chapter in enumerate(["08_zero1", "09_zero2", "10_zero3"], 1) if row.knows(chapter)),
               default=0)
    schedule = row.value("--pipeline", "1f1b")
    flags = {"model": MODEL, "gpus": GPUS, "device": device, "batch": BATCH, "micro-batch": 1,
             "tp": tp, "cp": cp, "dp": GPUS // (tp * cp * pp), "pp": pp, "ep": 1, "zero": zero,
             "replicas": row.value("--replicas", 1), "recompute": "none",
             "schedule": schedule, "precision": row.value("--precision", "bf16")}
    if schedule == "interleaved":
        flags["chunks"] = 2
    words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    return words + ["--no-sequence-parallel"] * ("--sequence-parallel" not in row.flags.split())


def plan_all(rows, args):
    """Plans for those of the rows that can have one. On a device of endless memory, so that the planner
    tells the bytes of what does not fit, too. @throws RunError"""
    text = (runs.ROOT / DEVICE).read_text(encoding="utf-8")
    device, endless = tomllib.loads(text), args.out / "runs/endless.toml"
    endless.write_text(re.sub(r"(\[memory\].*?\ngigabytes = )[\d.]+", r"\g<1>1000000", text, count=1, flags=re.DOTALL),
                       encoding="utf-8")
    room = int(device["achieved"]["usable"] * device["memory"]["gigabytes"] * 1e9)
    plans = []
    for row in (row for row in rows if row.chapter in CHAPTERS):
        words = [runs.program("23_planner", args), *flags_of_plan(row, runs.seen_from_root(endless))]
        command, report = runs.call(words, args.out / "runs/plan.json")
        if len(report["layouts"]) != 1:
            raise RunError(f"{command}: {len(report['layouts'])} layouts, not one")
        plans.append(Plan(row, command, report["layouts"][0], room))
    return plans
