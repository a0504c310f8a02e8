"""Runs the rows, one after the other, and keeps what each of them reports. Times are taken in turns."""

import json
import shlex
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rows import REFERENCE, Row, flags_of
from traces import Difference, TraceError, first_difference, losses, read_trace

ROOT = Path(__file__).resolve().parents[2]
TIMED_STEPS = 5  # of a run in a round, or all if there are fewer
STATES = ["Param", "Master", "Grad", "Optim"]  # what ZeRO shards
CATEGORIES = [*STATES, "Activation", "Workspace", "Comm"]


class Bytes:
    """What `ranks`, a list of {category: peak bytes}, take."""

    @property
    def peak(self):
        """Of the rank that takes most."""
        return self.most(CATEGORIES)

    @property
    def states(self):
        """Of the rank that has most of them: weights, gradients, optimizer states."""
        return self.most(STATES)

    @property
    def without_workspace(self):
        return self.most(name for name in CATEGORIES if name != "Workspace")

    def most(self, categories):
        names = list(categories)
        return max(sum(rank.get(name, 0) for name in names) for rank in self.ranks)


@dataclass
class Run(Bytes):
    """A row that has run: its command, report and trace."""

    row: Row
    command: str
    report: dict
    trace: list
    traffic: list = field(default_factory=list)  # [{"rank":, operation: bytes of one step}]
    difference: Difference | None = None
    times: list = field(default_factory=list)  # ms a step, of each round
    speed: float = 1.0  # times as fast as chapter 06 in the same round: the median over rounds

    @property
    def ms(self):
        return statistics.median(self.times)

    @property
    def verdict(self):
        """same; other: as expected; wrong: it must be the same and is not."""
        if self.difference is None:
            return "same"
        return "other" if self.row.differs else "wrong"

    @property
    def losses(self):
        return losses(self.trace)

    @property
    def ranks(self):
        return [bytes_of(rank) for rank in self.report["memory"]]

    @property
    def sent(self):
        """Bytes that a rank sends in a step: the mean over ranks."""
        total = sum(sum(operations(rank).values()) for rank in self.traffic)
        return total / max(1, len(self.traffic))

    @property
    def pipeline(self):
        return self.report.get("extra", {}).get("pipeline")


class RunError(Exception):
    """A program that refused, failed or wrote no report."""


def bytes_of(rank, which="measured"):
    """{category: peak bytes} of an entry of the report's memory."""
    return {name: entry[which] for name, entry in rank.items() if name != "rank"}


def operations(rank):
    """{operation: bytes} of an entry of Run.traffic."""
    return {name: sent for name, sent in rank.items() if name != "rank"}


def seen_from_root(path):
    """As the programs see it, which run there."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def program(row, args):
    return Path("build", args.preset, "bin", f"ch{row.chapter}")


def execute(row, args, folder, **other):
    """Runs a row once. Returns its command and its report."""
    report = folder / f"{row.key}.json"
    report.unlink(missing_ok=True)  # never an older run's
    command = [str(program(row, args)), *flags_of(row, args, **other)]
    outputs = ["--report", str(report)]
    if "steps" not in other:
        outputs += ["--trace", str(folder / f"{row.key}.jsonl")]
    done = subprocess.run([*command, "--quiet", *outputs], cwd=ROOT, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise RunError(f"{shlex.join(command)}: {said}")
    try:
        return shlex.join(command), json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{shlex.join(command)}: no report: {error!r}") from error


def step_traffic(shorter, longer, steps):
    """Bytes on the wire of one step, by rank and operation, from two runs that are `steps` apart:
    their difference has neither the initial weights nor the validation in it."""
    ranks = []
    for a, b in zip(shorter["comm"], longer["comm"]):
        sent = {name: (count["wire_bytes"] - a.get(name, {}).get("wire_bytes", 0)) // steps
                for name, count in b.items() if name != "rank"}
        ranks.append({"rank": b["rank"], **{name: n for name, n in sent.items() if n > 0}})
    return ranks


def run_row(row, args):
    """Runs a row, and twice more, for a few steps, if its ranks talk to each other.

    @throws RunError
    """
    folder = args.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    command, report = execute(row, args, folder)
    try:
        trace = read_trace(folder / f"{row.key}.jsonl", args.steps)
    except TraceError as error:
        raise RunError(f"{command}: {error}") from error
    run = Run(row, command, report, trace)
    if report["layout"]["ranks"] > 1:
        short = folder / "short"
        short.mkdir(exist_ok=True)
        shorter, longer = (execute(row, args, short, steps=n)[1] for n in (1, 3))
        run.traffic = step_traffic(shorter, longer, 2)
    return run


def time_in_turns(runs, args):
    """Runs all rows again in rounds, for times alone: others use the machine, too, and it is faster in
    one minute than in the next.

    @throws RunError
    """
    folder = args.out / "runs/rounds"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", flush=True)
        for run in runs:
            report = execute(run.row, args, folder, steps=min(args.steps, TIMED_STEPS))[1]
            run.times.append(report["step_ms_median"])
    reference = reference_of(runs)
    for run in runs:
        run.speed = statistics.median(a / b for a, b in zip(reference.times, run.times))


def reference_of(runs):
    return next(run for run in runs if run.row.key == REFERENCE)


def judge(runs):
    """Holds every run against chapter 06's."""
    reference = reference_of(runs)
    for run in runs:
        run.difference = first_difference(reference.trace, run.trace)
