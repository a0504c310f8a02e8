"""Find the bug: a chapter's files with one fault in them, as a black box.

The fault is a mutant of a lab. Who looks for it sees what the check has measured, and no code, and
names it from the list of all faults of that lab. A number draws fault and list: the same everywhere.
Numbers go round: each round draws every fault once, and never begins with the fault that ended the last.
"""

import hashlib
import shutil

from . import judge
from .labs import Refused, mutated, write

MOST_ROWS = 6  # of a gate, that are shown


def draw(lab, number):
    """(the mutant, all mutants of the lab in the order of the list)"""
    if number < 1:
        raise Refused(f"no bug {number}; legal are 1, 2, 3, ...")
    mutants = lab.mutants

    def shuffled(what, n):
        return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{what} {lab.number} {n} {mutant.name}".encode()).digest())

    round_of, at = divmod(number - 1, len(mutants))
    faults = shuffled("bug", round_of)
    if round_of and faults[0].name == shuffled("bug", round_of - 1)[-1].name:
        faults[0], faults[1] = faults[1], faults[0]  # of three or more: so the last stays as it is
    return faults[at], shuffled("list", number)


def measure(lab, build, number, seed, program):
    """What the check says of the bug. Its files are removed afterwards."""
    mutant, _ = draw(lab, number)
    folder = build.folder / "labs/bug"  # the same each time: then ccache knows what it has compiled
    with build.alone():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            write(folder, mutated(lab, mutant))
            return judge.check(lab, build, folder, seed, program)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def rows(results):
    """Lines that say what differs, gate by gate."""
    for result in results:
        for row in result.faults[:MOST_ROWS]:
            yield f"  {result.gate.name}: {row.case}: {row.yours}; right is {row.reference}"
        if len(result.faults) > MOST_ROWS:
            yield f"  {result.gate.name}: and {len(result.faults) - MOST_ROWS} rows more of {result.rows}"


def choices(lab, number):
    """The faults to choose from, numbered from 1."""
    return [f"  {i:2}  {mutant.symptom}" for i, mutant in enumerate(draw(lab, number)[1], 1)]


def named(lab, number, choice):
    """(whether it is the fault, what to say)"""
    mutant, listed = draw(lab, number)
    if not 1 <= choice <= len(listed):
        raise Refused(f"no fault {choice}; the list has 1 to {len(listed)}")
    if listed[choice - 1].name != mutant.name:
        return False, f"bug {number} of lab {lab.number}: not that one"
    told = [f"bug {number} of lab {lab.number}: found, {mutant.name}"]
    for change in [] if lab.is_extension else mutant.changes:  # an extension's answer stays out of sight
        told += ["the chapter's:", change["find"].rstrip("\n"), "with the fault:", change["put"].rstrip("\n") or "(nothing)"]
    return True, "\n".join(told)
