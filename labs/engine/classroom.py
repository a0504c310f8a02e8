"""Grades a folder of submissions: a folder for each student, several gradings at once, each a process of its own.

A folder of results is one round. Its seeds are drawn once, so all students of a round have the same
cases, and a mutant that is graded like a submission shows by its rows who has made that error. What is
graded stays: after a stop the same command goes on, and it grades again only what has changed.
"""

import csv
import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from . import grade, judge
from .labs import Refused, mutated, replace, write

OF_STUDENTS, OF_MUTANTS = "results", "mutants"  # folders of a round: files of results


def students(submissions):
    """{name: folder}"""
    if not submissions.is_dir():
        raise Refused(f"no folder {submissions} with a folder for each student")
    loose = [path.name for path in submissions.iterdir() if not path.is_dir() and not path.name.startswith(".")]
    if loose:
        raise Refused(f"{submissions} has {loose[0]} beside folders; legal is a folder for each student, unpacked")
    return {path.name: path for path in sorted(submissions.iterdir()) if path.is_dir()}


def seed_of(round_, lab, seed):
    """The seed of a round: that of its first grading. @throws Refused"""
    path = round_ / "round.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["lab"] != lab.name or seed not in (None, known["seed"]):
            raise Refused(f"{round_} is a round of {known['lab']} with seed {known['seed']}; legal is a new folder")
        return known["seed"]
    if round_.exists() and any(round_.iterdir()):
        raise Refused(f"{round_} has files and is no round; legal is a new folder")
    round_.mkdir(parents=True, exist_ok=True)
    seed = grade.drawn(seed)[0]
    replace(path, json.dumps({"lab": lab.name, "seed": seed}) + "\n")
    return seed


def called(command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


class Round:
    """Gradings with one seed, whose results lie in one folder."""

    def __init__(self, lab, build, folder, seed):
        self.lab, self.build, self.folder, self.seed = lab, build, folder, seed
        folder.mkdir(exist_ok=True)

    def results(self, name):
        return self.folder / f"{name}.json"

    def known(self, name, submission):
        """What an earlier grading of the same files says; None if there is none."""
        try:
            found = json.loads(self.results(name).read_text(encoding="utf-8"))
            return found if found["extra_data"]["digest"] == grade.digest(self.lab, submission) else None
        except (OSError, ValueError, KeyError):
            return None  # nor of what could not be judged, which is tried again

    def grade(self, name, submission):
        """(results or None, why there are none)"""
        if found := self.known(name, submission):
            return found, ""
        words = ["--build", self.build.folder, "grade", self.lab.number, "--submission", submission]
        command = [sys.executable, "-B", self.lab.root / "labs/lab.py", *words, "--results", self.results(name), "--seed", self.seed]
        run = called([str(word) for word in command])
        found = self.known(name, submission)
        return found, "" if found else (run.stderr.strip().splitlines() or [f"grade ended with status {run.returncode}"])[-1]

    def grade_all(self, folders, jobs):
        """{name: (results, why not)}"""
        graded = {}
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for name, (found, why) in zip(folders, pool.map(self.grade, folders, folders.values())):
                    graded[name] = found, why
                    print(f"{len(graded)} of {len(folders)}: {name}: {why or f'{grade.score(found):g} points'}", flush=True)
            except BaseException:
                pool.shutdown(cancel_futures=True)  # those under way end, and are known next time
                raise
        return graded


def marks_of_mutants(lab, build, folder, seed, graded, jobs):
    """{mutant: its marks}, of those whose gate somebody fails: they are graded as if somebody had handed them in."""
    failed = {gate for found, _ in graded.values() if found for gate in marks(found)}
    folders = {}
    for mutant in lab.mutants:
        if mutant.gate in failed:
            folders[mutant.name] = folder / OF_MUTANTS / mutant.name
            write(folders[mutant.name], mutated(lab, mutant))
    if not folders:
        return {}
    print(f"grading {len(folders)} mutants, to name errors by them", flush=True)
    of_mutants = Round(lab, build, folder / OF_MUTANTS, seed).grade_all(folders, jobs)
    return {name: marks(found) for name, (found, _) in of_mutants.items() if found}


def marks(found):
    return found["extra_data"].get("marks", {})


def named(mutants, known, found):
    """The mutants whose rows at their own gate are those of a submission."""
    return [mutant.name for mutant in mutants if same(known.get(mutant.name, {}), marks(found), mutant.gate)]


def same(one, other, gate):
    return gate in one and one[gate] == other.get(gate)


def said(found):
    """The first line of what a student is told, and the compiler's first error."""
    first, *more = found["output"].split("\n")
    return " ".join([first, *[line for line in more if ": error: " in line][:1]])


def table(lab, graded, errors):
    """grades.csv"""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["student", "points", *(gate.name for gate in lab.gates), "likeness", "look_at", "errors", "said"])
    for name, (found, why) in graded.items():
        if not found:
            rows.writerow([name, "", *("" for _ in lab.gates), "", "", "", f"not graded: {why}"])
            continue
        points = {test["name"]: test["score"] for test in found["tests"]}
        more = found["extra_data"]
        alike = "" if more["likeness"] is None else f"{more['likeness']:.2f}"
        rows.writerow([name, f"{grade.score(found):g}", *(points.get(gate.name, 0) for gate in lab.gates), alike, len(more["look_at"]), " ".join(errors[name]), said(found)])
    return out.getvalue()


def page(lab, graded, errors, known):
    """errors.md: which errors were made, the most frequent first, and by whom."""
    whole = sum(1 for found, _ in graded.values() if found and grade.score(found) == lab.points)
    lines = [f"# Errors in lab {lab.number}: {lab.title}", "", f"{len(graded)} submissions, {whole} with all points.", "", "| error | gate | what shows | who |", "|---|---|---|---|"]
    who = {mutant.name: [name for name in graded if mutant.name in errors[name]] for mutant in lab.mutants}
    for mutant in sorted(lab.mutants, key=lambda mutant: -len(who[mutant.name])):
        if who[mutant.name]:
            lines.append(f"| `{mutant.name}` | {mutant.gate} | {mutant.symptom} | {', '.join(who[mutant.name])} |")
    lines += ["", "## Failures that no mutant explains", ""]
    for gate in lab.gates:
        failed = [name for name, (found, _) in graded.items() if found and gate.name in marks(found)]
        left = [name for name in failed if not any(same(known[error], marks(graded[name][0]), gate.name) for error in errors[name])]
        lines += [f"- {gate.name}: {', '.join(left)}"] if left else []
    lines += ["", "## Not run", ""]
    for name, (found, why) in graded.items():
        if not found or not found["tests"]:
            lines.append(f"- {name}: {why or said(found)}")
    lines += ["", "## For a person to look at", ""]
    lines += [f"- {name}: {note}" for name, (found, _) in graded.items() if found for note in found["extra_data"]["look_at"]]
    return "\n".join(lines) + "\n"


def grade_class(lab, build, submissions, folder, seed, jobs):
    """Grades all, and writes grades.csv and errors.md. Returns {name: why} of those that could not be graded."""
    folders, seed = students(submissions), seed_of(folder, lab, seed)
    build.prepare(judge.targets(lab))
    graded = Round(lab, build, folder / OF_STUDENTS, seed).grade_all(folders, jobs)
    known = marks_of_mutants(lab, build, folder, seed, graded, jobs)
    errors = {name: named(lab.mutants, known, found) if found else [] for name, (found, _) in graded.items()}
    replace(folder / "grades.csv", table(lab, graded, errors))
    replace(folder / "errors.md", page(lab, graded, errors, known))
    return {name: why for name, (found, why) in graded.items() if not found}
