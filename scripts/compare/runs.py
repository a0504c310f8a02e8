"""Runs the rows, one after the other, and keeps what each of them reports. Times are taken in turns."""

import json
import math
import shlex
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rows import REFERENCE, Row, flags_of

ROOT = Path(__file__).resolve().parents[2]
TIMED_STEPS = 5  # of a run in a round, or all if there are fewer
STATES = ["Param", "Master", "Grad", "Optim"]  # what ZeRO shards
CATEGORIES = [*STATES, "Activation", "Workspace", "Comm"]
FIELDS = ["loss", "grad_norm", "lr", "param_hash"]


@dataclass
class Run:
    """A row that has run: its command, report and trace."""

    row: Row
    command: str
    report: dict
    trace: list
    traffic: list = field(default_factory=list)  # of each rank {operation: bytes of one step}
    difference: str = ""  # from chapter 06's trace; empty: none
    times: list = field(default_factory=list)  # ms a step, of each round
    speeds: list = field(default_factory=lambda: [1.0])  # times as fast as chapter 06 in the same round

    @property
    def ms(self):
        return statistics.median(self.times)

    @property
    def speed(self):
        return statistics.median(self.speeds)

    @property
    def verdict(self):
        """"same"; "other", where other numbers are expected; "wrong", where they must be the same and are not."""
        if not self.difference:
            return "same"
        return "other" if self.row.differs else "wrong"

    @property
    def losses(self):
        return [float.fromhex(line["loss"]) for line in self.trace]

    @property
    def ranks(self):
        return [{name: entry["measured"] for name, entry in rank.items() if name != "rank"}
                for rank in self.report["memory"]]

    @property
    def peak(self):
        """The bytes of the rank that takes most."""
        return self.most(CATEGORIES)

    @property
    def states(self):
        """Bytes of weights, gradients and optimizer states, of the rank that has most of them."""
        return self.most(STATES)

    def most(self, categories):
        return max(sum(rank.get(name, 0) for name in categories) for rank in self.ranks)

    @property
    def sent(self):
        """Bytes that a rank sends in a step: the mean over ranks."""
        return sum(sum(rank.values()) for rank in self.traffic) / max(1, len(self.traffic))

    @property
    def bubble(self):
        return self.report.get("extra", {}).get("pipeline", {}).get("bubble", {})


class RunError(Exception):
    """A program that failed, or wrote no report."""


class Refused(RunError):
    """A program has refused the flags; its line on stderr."""


def seen_from_root(path):
    """The path as the programs see it, which run in the root."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def program(name, args):
    return Path("build", args.preset, "bin", f"ch{name}")


def call(command, report):
    """Runs a program in the root. Returns its command and its report. @throws RunError"""
    report.unlink(missing_ok=True)  # never an older run's
    command = [str(word) for word in command]
    done = subprocess.run([*command, "--report", str(report)], cwd=ROOT, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace")
    said = done.stderr.strip() or f"exit status {done.returncode}"
    if done.returncode == 2:
        raise Refused(said.removeprefix("error: "))
    if done.returncode != 0:
        raise RunError(f"{shlex.join(command)}: {said}")
    try:
        return shlex.join(command), json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{shlex.join(command)}: no report: {error!r}") from error


def read_trace(path, steps):
    """The lines of a trace of `steps` steps, their numbers still text. @throws RunError if a step is
    missing or a number is not finite"""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        whole = [line["step"] for line in lines] == list(range(steps)) and all(
            math.isfinite(float.fromhex(line[name])) for line in lines for name in FIELDS[:3])
        if whole and all(len(line["param_hash"]) == 16 for line in lines):
            return lines
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise RunError(f"{path}: no trace of {steps} steps with finite numbers")


def difference(reference, trace):
    """The first step and field that are not the same text; empty if there are none."""
    for wanted, line in zip(reference, trace, strict=True):
        for name in FIELDS:
            if line[name] != wanted[name]:
                return f"step {line['step']}, {name}: {line[name]}, not {wanted[name]}"
    return ""


def step_traffic(shorter, longer, steps):
    """Of each rank the bytes on the wire of one step, by operation, from two runs that are `steps` apart:
    their difference has neither the initial weights nor the validation in it."""
    ranks = []
    for a, b in zip(shorter["comm"], longer["comm"]):
        sent = {name: (count["wire_bytes"] - a.get(name, {}).get("wire_bytes", 0)) // steps
                for name, count in b.items() if name != "rank"}
        ranks.append({name: n for name, n in sent.items() if n > 0})
    return ranks


def run_row(row, args):
    """Runs a row, and twice more, for a few steps, if its ranks talk to each other. @throws RunError"""
    folder = args.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / f"{row.key}.jsonl"
    start = lambda steps, name, *more: call([program(row.chapter, args), *flags_of(row, args, steps), "--quiet", *more],
                                            folder / f"{name}.json")
    command, report = start(args.steps, row.key, "--trace", trace)
    run = Run(row, command, report, read_trace(trace, args.steps))
    if report["layout"]["ranks"] > 1:
        shorter, longer = (start(steps, "short")[1] for steps in (1, 3))
        run.traffic = step_traffic(shorter, longer, 2)
    return run


def time_in_turns(runs, args):
    """Runs all rows again in rounds, for times alone: others use the machine, too, and it is faster in
    one minute than in the next. @throws RunError"""
    steps = min(args.steps, TIMED_STEPS)
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", flush=True)
        for run in runs:
            command = [program(run.row.chapter, args), *flags_of(run.row, args, steps), "--quiet"]
            run.times.append(call(command, args.out / "runs/round.json")[1]["step_ms_median"])


def judge(runs):
    """Holds every run against chapter 06's."""
    reference = next(run for run in runs if run.row.key == REFERENCE)
    for run in runs:
        run.difference = difference(reference.trace, run.trace)
        run.speeds = [a / b for a, b in zip(reference.times, run.times)] or [1.0]
