"""Grades a submission: results.json as Gradescope reads it.

Of a submission only the bodies of the lab's functions are taken. They are compiled and run as a user
of their own, in a root of their own, if this is root: so they do no harm, and read no file of others.
Their score may be forged all the same: results.json tells a person where to look.

Seeds are drawn: so are ranks, sizes, numbers, and the weights and the text of the program.
results.json carries them.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import secrets
import tempfile
import traceback
from pathlib import Path

from . import judge, sandbox, transplant
from .build import DoesNotCompile
from .labs import Refused, replace

SEEDS = 3
LARGEST = 1 << 20  # bytes of a file
DEEPEST = 20  # folders in folders of a submission
PASTED = 0.8  # likeness from which a person is told; a chapter with an error in it has 0.81 to 1
MOST_SHOWN = 2000  # characters of what the student sees of a gate
# Errors that are not the submission's fault: the machine has no room, no processes, no files.
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
RULE = "Of your files only the bodies of the lab's functions are taken; a helper is a lambda in a body."


def taken(lab, submission, work, notes):
    """Writes the lab's files with the bodies of the submission. Returns sentences for the student. @throws NotTaken"""
    said = []
    for path in lab.files:
        file = found(submission, path)
        text = transplant.read(file)
        said += transplant.encoding(file)
        notes += transplant.look_at(lab, path, text)
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(transplant.merged(lab, path, text), encoding="utf-8")
    return said


def found(submission, path):
    """A file of a submission. @throws NotTaken"""
    # Gradescope flattens what is uploaded file by file; a zip may hold the folder around it.
    name = Path(path).name
    candidates = itertools.chain(
        [submission / path, submission / name],
        (folder / path for folder in folders(submission)),
        (folder / name for folder in folders(submission)),
    )
    file = next((c for c in candidates if c.is_file() and not c.is_symlink()), None)
    if file is None or not file.resolve().is_relative_to(submission.resolve()):
        raise transplant.NotTaken(f"no file {path} in the submission")
    if file.stat().st_size > LARGEST:
        raise transplant.NotTaken(f"{file.name} has {file.stat().st_size:,} bytes; at most {LARGEST:,} are taken")
    return file


def folders(submission):
    """Its folders, not too deep and through no link."""
    for folder, below, _ in os.walk(submission):
        below[:] = sorted(below) if len(Path(folder).relative_to(submission).parts) < DEEPEST else []
        yield Path(folder)


def drawn(seed):
    """The seeds of a grading; `seed` is the first of them, or None."""
    first = 2 + secrets.randbelow(1 << 40) if seed is None else seed
    return [first + i for i in range(SEEDS)]


def run_all(lab, build, work, seeds):
    """For each gate the result of the seed that shows the least, with the share of all seeds."""
    runs, _ = judge.check_seeds(lab, build, work, seeds, True, guarded=True)
    results = []
    for gate in lab.gates:
        of_gate = [result for run in runs for result in run if result.gate.name == gate.name]
        worst = min(of_gate, key=lambda result: result.share)
        worst.share = sum(result.share for result in of_gate) / len(of_gate)
        worst.mark = mark(of_gate)
        results.append(worst)
    return results


def mark(of_gate):
    """A hash of all rows that are wrong; nothing if none is."""
    rows = [(i, fault.case, fault.yours) for i, result in enumerate(of_gate) for fault in result.faults]
    return hashlib.sha256(repr(rows).encode()).hexdigest() if rows else ""


def likeness(lab, submission):
    try:
        return transplant.likeness(lab, {path: transplant.read(found(submission, path)) for path in lab.files})
    except transplant.NotTaken:
        return None


def digest(lab, submission):
    """Of what a grading depends on, but for its seeds and the libraries: whether it would be the same."""
    checks = [*lab.folder.glob("*.*"), *(lab.root / "labs").glob("*.[ch]*")]
    files = [*sorted(checks), *(lab.root / path for path in lab.files)]
    with contextlib.suppress(transplant.NotTaken):
        files += [found(submission, path) for path in lab.files]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def score(found):
    """The points of a results.json."""
    return found.get("score", sum(test["score"] for test in found["tests"]))


def nothing(why):
    """A submission that was not run."""
    return {"score": 0, "output": why, "visibility": "visible", "stdout_visibility": "hidden", "tests": []}


def not_judged(fault):
    traceback.print_exc()
    return {**nothing(f"the submission could not be judged ({type(fault).__name__}); tell who teaches this course"), "extra_data": {"not_judged": True}}


def report(results, said):
    tests = [
        {
            "name": result.gate.name,
            "score": result.points,
            "max_score": result.gate.points,
            "output": f"{result.gate.what}\n" + ("" if result.passed else
                f"in: {result.case}\nwithout the idea: {result.without}\nyours: {result.yours}\nreference: {result.reference}")[:MOST_SHOWN],
            "visibility": "visible",
        }
        for result in results
    ]  # fmt: skip
    marks = {result.gate.name: result.mark for result in results if result.mark}
    output = "\n".join(filter(None, [*said, sandbox.missing()]))
    return {"output": output, "visibility": "visible", "stdout_visibility": "hidden", "tests": tests, "extra_data": {"marks": marks}}


def evaluate(lab, build, submission, seeds, notes):
    """What results.json says. @param notes gets lines for a person"""
    work = Path(tempfile.mkdtemp(prefix="ladder-grade-"))
    try:
        said = taken(lab, submission, work, notes)
        results = run_all(lab, build, work, seeds)
        notes += build.notes
        return report(results, said)
    except transplant.NotTaken as fault:
        return nothing(f"{fault}\n{RULE}")
    except DoesNotCompile as fault:
        sandbox.demand_room(work)
        return nothing(f"does not compile:\n{str(fault)[:MOST_SHOWN]}\n{RULE}")
    except Exception as fault:
        if isinstance(fault, (Refused, MemoryError)) or getattr(fault, "errno", None) in OF_THE_MACHINE:
            raise  # the grader is not set up, or the machine has no room, whatever is handed in
        return not_judged(fault)  # something that nobody has thought of: it ends with a result, too
    finally:
        sandbox.remove(work)


def may_replace(results):
    """Whether nothing is lost: there is no such file, or it looks like what grade() writes."""
    if not os.path.lexists(results):
        return True
    try:
        return results.is_file() and "tests" in json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def grade(lab, build, submission, results, seed=None):
    """Writes results.json. Returns a line about it, and lines of the submission that a person should look at."""
    if not submission.is_dir():
        raise Refused(f"no folder {submission} with a submission")
    if not results.parent.is_dir():
        raise Refused(f"no folder {results.parent} for {results.name}")
    if not may_replace(results):
        raise Refused(f"--results {results} is there and stays as it is; legal is a new file, or one that grade has written")
    results.unlink(missing_ok=True)  # of another submission, perhaps: it does not outlive a grading that fails
    build.prepare(judge.targets(lab))
    seeds, notes = drawn(seed), []
    graded = evaluate(lab, build, submission, seeds, notes)
    alike = likeness(lab, submission)
    if alike is not None and alike >= PASTED:
        notes.append(f"{alike:.0%} of what is taken stands in the tree's own files, whatever the names of variables")
    more = graded.setdefault("extra_data", {})  # no student sees it
    more.update(seeds=seeds, look_at=notes, likeness=alike)
    if "not_judged" not in more:
        more["digest"] = digest(lab, submission)
    replace(results, json.dumps(graded, indent=1) + "\n")
    said = f"{lab.name}: {score(graded):g} of {lab.points:g} points, in {results}; grade --seed {seeds[0]} repeats it"
    return "\n".join([said, *(["look at these lines", *notes] if notes else [])])
