"""Holds a lab to its word: the stub compiles and gets no point, the reference passes with all, and
each mutant fails at its own gate first. Prints which mutants break which sentence of the handout. The
reference of an extension is not in the tree.

  python3 -m engine.selftest BUILD NN [--every-mutant]     in the folder labs/; its targets are built

A mutant takes some seconds to compile: without the flag none is, and test_labs.py holds that they fit
the tree. With the flag the reference is graded, too, where root can build the walls: a check may need
what stands outside of them.
"""

import sys
from pathlib import Path

from . import judge, musts, sandbox
from .build import Build, DoesNotCompile
from .labs import ROOT, find, mutated, stub, write

LEAST_LOST = 3  # points, of 100
MOST_MUTANTS = 28
SEEDS = (1, 2, 3)  # whoever grades draws seeds


def folder_of(lab, build, name, texts):
    """A folder with these files, the same each time, so that ccache knows what it has compiled."""
    folder = build.folder / "labs/selftest" / lab.number / name
    write(folder, texts)
    return folder


def first_failure(results):
    return next((result.gate.name for result in results if not result.passed and not result.limited), None)


def faults_of(lab, build, every_mutant):
    if not lab.is_extension:
        yield from faults_of_reference(lab, build)
        if every_mutant and sandbox.has_room():
            yield from faults_in_a_room(lab, build)
    yield from faults_of_stub(lab, build)
    if not 3 <= len(lab.mutants) <= MOST_MUTANTS:
        yield f"{len(lab.mutants)} mutants; 3 to {MOST_MUTANTS} are wanted"
    for mutant in lab.mutants if every_mutant else []:
        yield from faults_of_mutant(lab, build, mutant)


def faults_of_reference(lab, build):
    runs, _ = judge.check_seeds(lab, build, judge.AS_BUILT, SEEDS, program=True)
    if never := {gate.name for gate in lab.gates} - {result.gate.name for result in runs[0]}:
        yield f"nothing is measured at {', '.join(never)}"
    for seed, results in zip(SEEDS, runs):  # the sizes of a case may fit together with one seed alone
        if failed := first_failure(results):
            yield f"with seed {seed} the reference fails at {failed}"


def faults_in_a_room(lab, build):
    folder = folder_of(lab, build, "reference", {path: (lab.root / path).read_text(encoding="utf-8") for path in lab.files})
    results = judge.check_seeds(lab, build, folder, [1], program=True, guarded=True)[0][0]
    if failed := first_failure(results):
        yield f"graded in a room, the reference fails at {failed}"


def faults_of_stub(lab, build):
    try:
        results = judge.check(lab, build, folder_of(lab, build, "stub", {path: stub(lab, path) for path in lab.files}))[0]
    except DoesNotCompile as fault:
        yield f"the stub does not compile: {fault}"
        return
    if any(result.share > 0 for result in results):
        yield "the stub gets points: " + ", ".join(r.gate.name for r in results if r.share > 0)


def faults_of_mutant(lab, build, mutant):
    gate = next(gate for gate in lab.gates if gate.name == mutant.gate)
    try:
        runs, _ = judge.check_seeds(lab, build, folder_of(lab, build, mutant.name, mutated(lab, mutant)), SEEDS, program=gate.kind == "trace")
    except DoesNotCompile as fault:
        yield f"mutant {mutant.name} does not compile: {fault}"
        return
    for seed, results in zip(SEEDS, runs):
        if gate.kind == "trace" and seed != SEEDS[0]:  # the program runs with the first alone
            break
        written = [result for result in results if result.gate.name not in mutant.leaves]
        failed = first_failure(written)
        if failed != mutant.gate:
            yield f"mutant {mutant.name}, seed {seed}, fails first at {failed}, not at {mutant.gate}"
        lost = sum(result.gate.points - result.points for result in written)
        if lost < LEAST_LOST:
            yield f"mutant {mutant.name}, seed {seed}, loses {lost:g} points; a missing part must lose {LEAST_LOST}"
        for result in results:
            if result.gate.name in mutant.also and result.gate.points - result.points < LEAST_LOST:
                yield f"mutant {mutant.name}, seed {seed}, loses less than {LEAST_LOST} points at {result.gate.name}"


def main(folder, number, *flags):
    if flags not in [(), ("--every-mutant",)]:
        print(f"selftest: {' '.join(flags)}; legal: --every-mutant, or nothing", file=sys.stderr)
        return 2
    lab = find(number, ROOT)
    faults = list(faults_of(lab, Build(ROOT, Path(folder).resolve()), every_mutant=bool(flags)))
    print(*musts.table(lab), sep="\n")
    for fault in faults:
        print(f"labs/{lab.name}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
