"""Whether two runs had the same bits: their --trace files, compared as text."""

import json
import math
from dataclasses import dataclass

FIELDS = ["loss", "grad_norm", "lr", "param_hash"]


class TraceError(Exception):
    """A --trace file that is not one."""


def read_trace(path, steps):
    """The lines of a trace of `steps` steps, their numbers still text.

    @throws TraceError if a step is missing or a number is not finite
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if [line["step"] for line in lines] != list(range(steps)):
            raise TraceError(f"{path.name}: not the steps 0 to {steps - 1}")
        for line in lines:
            if not all(math.isfinite(float.fromhex(line[f])) for f in FIELDS[:3]):
                raise TraceError(f"{path.name}: step {line['step']} is not finite")
            if len(line["param_hash"]) != 16:
                raise TraceError(f"{path.name}: step {line['step']} has no hash")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path.name}: no trace: {error!r}") from error
    return lines


def losses(trace):
    return [float.fromhex(line["loss"]) for line in trace]


@dataclass(frozen=True)
class Difference:
    """The first step, and the first field of it, that is not the same text."""

    step: int
    field: str
    reference: str
    value: str

    def __str__(self):
        return f"step {self.step}, {self.field}: {self.value}, not {self.reference}"


def first_difference(reference, trace):
    """None if every field of every step is the same."""
    for expected, line in zip(reference, trace):
        for field in FIELDS:
            if line[field] != expected[field]:
                return Difference(line["step"], field, expected[field], line[field])
    if len(reference) != len(trace):
        shorter = min(len(reference), len(trace))
        return Difference(shorter, "steps", str(len(reference)), str(len(trace)))
    return None
