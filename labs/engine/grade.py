"""Grades a submission: results.json as Gradescope reads it.

Of a submission only the files that the lab names are taken. They are compiled after a look at what
they include, and run as a user of their own, if this is root, with limits. Seeds are drawn: so are
ranks, sizes and numbers.
"""

import json
import secrets
import shutil
import tempfile
from pathlib import Path

from . import judge, sandbox
from .labs import Refused

SEEDS = 3
LARGEST = 1 << 20  # bytes of a file


def taken(lab, submission, work):
    """Copies the files of the lab; the first that is missing or no plain file, else None."""
    for path in lab.files:
        # Gradescope flattens what is uploaded file by file; a zip may hold the folder around it.
        candidates = [submission / path, submission / Path(path).name, *sorted(submission.rglob(path))]
        found = next((c for c in candidates if c.is_file() and not c.is_symlink()), None)
        if found is None or found.stat().st_size > LARGEST or not found.resolve().is_relative_to(submission.resolve()):
            return path
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, work / path)
    return None


def run_all(lab, build, work):
    """For each gate the result of the seed that shows the least, with the share of all seeds."""
    seeds = [2 + secrets.randbelow(1 << 40) for _ in range(SEEDS)]
    runs, _ = judge.check_seeds(lab, build, work, seeds, True, sandbox.can_isolate())
    results = []
    for gate in lab.gates:
        of_gate = [result for run in runs for result in run if result.gate.name == gate.name]
        worst = min(of_gate, key=lambda result: result.share)
        worst.share = sum(result.share for result in of_gate) / len(of_gate)
        results.append(worst)
    return results


def nothing(lab, why):
    """A submission that was not run."""
    return {"score": 0, "output": why, "visibility": "visible", "tests": []}


def report(lab, results):
    tests = [
        {
            "name": result.gate.name,
            "score": result.points,
            "max_score": result.gate.points,
            "output": f"{result.gate.what}\n" + ("" if result.passed else
                f"in: {result.case}\nwithout the idea: {result.without}\nyours: {result.yours}\nreference: {result.reference}"),
            "visibility": "visible",
        }
        for result in results
    ]  # fmt: skip
    isolated = "" if sandbox.can_isolate() else "Not run by root: the program ran with the rights of the grader."
    return {"output": isolated, "visibility": "visible", "stdout_visibility": "hidden", "tests": tests}


def evaluate(lab, build, submission):
    with tempfile.TemporaryDirectory(prefix="ladder-grade-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        missing = taken(lab, submission, work)
        if missing:
            return nothing(lab, f"no file {missing} in the submission: a plain file of at most 1 MiB")
        build.wary = True
        try:
            read = judge.reads_reference(lab, build, work)
            if read:
                return nothing(lab, f"the submission includes {read}, which it may not")
            return report(lab, run_all(lab, build, work))
        except judge.DoesNotCompile as fault:
            return nothing(lab, f"does not compile:\n{str(fault)[:2000]}")


def grade(lab, build, submission, results):
    """Writes results.json; one line about it."""
    if not submission.is_dir():
        raise Refused(f"no folder {submission} with a submission")
    if not results.parent.is_dir():
        raise Refused(f"no folder {results.parent} for {results.name}")
    found = evaluate(lab, build, submission)
    results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    score = found.get("score", sum(test["score"] for test in found["tests"]))
    return f"{lab.name}: {score:g} of {lab.points:g} points, in {results}"
