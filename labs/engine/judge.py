"""A lab's files, compiled and measured against the reference: what check, grade and the tests do."""

import shutil
import tempfile
import time
from pathlib import Path

from . import gates, sandbox
from .build import DoesNotCompile
from .labs import Refused

TEXT_BYTES = 6000
AS_BUILT = None  # in place of a folder of files: the programs that CMake has built of the tree's


def text_to_train_on():
    """The same bytes everywhere; a little like words."""
    state, letters = 1, []
    for _ in range(TEXT_BYTES):
        state = (1103515245 * state + 12345) % (1 << 31)
        letters.append("etaoin shrdlu\n"[(state >> 16) % 14])
    return "".join(letters)


def targets(lab):
    return [f"lab_{lab.name}"] + ([f"ch{lab.name}"] if lab.program else [])


def check(lab, build, work, seed=1, program=False, isolate=False):
    """(results, what the program printed, seconds) of the files in the folder `work`, or AS_BUILT.
    @throws DoesNotCompile"""
    begin = time.monotonic()
    runs, printed = check_seeds(lab, build, work, [seed], program, isolate)
    return runs[0], printed, time.monotonic() - begin


def check_seeds(lab, build, work, seeds, program, isolate):
    """(the results of each seed, what was printed); of the program those of the first seed."""
    scratch = Path(tempfile.mkdtemp(prefix="ladder-lab-"))
    try:
        scratch.chmod(0o755)
        target = f"lab_{lab.name}"
        mine = program_of(lab, build, target, f"labs/{lab.name}/check.cpp", work, scratch)
        (scratch / "home").mkdir()
        (scratch / "reference").mkdir()
        runs, printed = [], ""
        for seed in seeds:
            yours = sandbox.run([mine], scratch / "home", seed=seed, seconds=20, isolate=isolate)
            reference = sandbox.run([build.binary(target)], scratch / "reference", seed=seed, seconds=60)
            runs.append(gates.judge([gate for gate in lab.gates if gate.kind != "trace"], yours, reference))
            printed += yours.printed
            if yours.ended.startswith("still running"):  # so will it with the next seed
                break
        if program and lab.program:
            result, more = run_program(lab, build, work, scratch, seeds[0], isolate)
            runs[0].append(result)
            printed += more
        return runs, printed
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def program_of(lab, build, target, source, work, scratch):
    """The path of `target` with the files of `work`, for any user to run."""
    if work is AS_BUILT:
        return build.binary(target)
    program = build.program(target, source, lab, work, scratch / "build")
    program.chmod(0o755)
    return program


def run_program(lab, build, work, scratch, seed, isolate):
    """The chapter's program with the lab's files, against the stored trace, on some number of
    ranks: the trace is the same for all."""
    gate = next(gate for gate in lab.gates if gate.kind == "trace")
    target = f"ch{lab.name}"
    mine = program_of(lab, build, target, f"chapters/{lab.name}/main.cpp", work, scratch)
    folder = scratch / "program"
    folder.mkdir()
    choices = lab.program["vary"]
    lines, ended, printed = trace_of(lab, mine, folder, choices[seed % len(choices)], isolate)
    reference = (lab.folder / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    result = gates.judge_trace(gate, lines, reference, ended)
    result.case = f"{lab.program['args']} {choices[seed % len(choices)]}"
    return result, printed if ended else ""  # a program that ends well prints its plan and its report


def trace_of(lab, program, folder, more, isolate=False):
    """(lines of its --trace, how it ended, what it printed)"""
    (folder / "text.txt").write_text(text_to_train_on(), encoding="utf-8")
    (folder / "text.txt").chmod(0o644)
    words = [program, *lab.program["args"].split(), *more.split(), "--data", "text.txt", "--trace", "trace.jsonl"]
    outcome = sandbox.run(words, folder, seconds=60, isolate=isolate)
    trace = folder / "trace.jsonl"
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines() if trace.is_file() else []
    return lines, outcome.ended, outcome.printed


def reads_reference(lab, build, work):
    """A file that a submission includes and must not: of chapters, anything that the check itself
    does not read; above all the lab's own files as the tree has them. None if there is none."""
    sources = [f"labs/{lab.name}/check.cpp"]
    reference = {(lab.root / path).resolve() for path in lab.files}
    known = build.includes(sources[0], Path("/nonexistent")) - reference
    mine = {(work / path).resolve() for path in lab.files}
    for path in sorted(build.includes(sources[0], work) - known - mine):
        shared = any(path.is_relative_to(lab.root / floor) for floor in ("kernels", "common"))
        if path in reference or path.is_relative_to(lab.root) and not shared:
            return str(path.relative_to(lab.root))
        if not path.is_relative_to("/usr"):
            return str(path)
    return None


__all__ = ["DoesNotCompile", "Refused", "check", "check_seeds", "reads_reference", "targets", "trace_of"]
