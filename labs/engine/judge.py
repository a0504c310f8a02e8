"""A lab's files, compiled and measured against the reference: what check, grade and the tests do."""

import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import gates, sandbox
from .labs import Refused
from .room import Room

TEXT_BYTES = 6000
AS_BUILT = None  # in place of a folder of files: the programs that CMake has built of the tree's


def text_to_train_on(seed):
    """A text that looks a little like words. Each seed gives the same bytes everywhere."""
    state, letters = seed % (1 << 31), []
    for _ in range(TEXT_BYTES):
        state = (1103515245 * state + 12345) % (1 << 31)
        letters.append("etaoin shrdlu\n"[(state >> 16) % 14])
    return "".join(letters)


def tasks_to_train_on(seed):
    """(chats, tasks) of chapters 36 and 37. A chat answers 7 or 46 by chance, and a task wants 7: who has learned
    from the chats is right now and then, so answers to one task earn different rewards."""
    chats, tasks = [], []
    for i in range(60):
        prompt = f"{(i + seed) % 7}+{i * i % 9}"
        chats.append({"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": ["7", "46"][i * 7 % 11 % 2]}]})
        tasks.append({"prompt": prompt, "answer": "7"})
    return ["".join(f"{json.dumps(line)}\n" for line in lines) for lines in (chats, tasks)]


def targets(lab):
    programs = [f"ch{lab.name}", *([f"ch{lab.program['base'].split()[0]}"] if "base" in lab.program else [])] if lab.program else []
    return [f"lab_{lab.name}", *programs]


def check(lab, build, work, seed=1, program=False):
    """(results, what the program printed, seconds) of the files in the folder `work`, or AS_BUILT.
    @throws DoesNotCompile"""
    begin = time.monotonic()
    runs, printed = check_seeds(lab, build, work, [seed], program)
    return runs[0], printed, time.monotonic() - begin


def check_seeds(lab, build, work, seeds, program, guarded=False):
    """(the results of each seed, what was printed); of the program those of the first seed.
    @param guarded whether the files are a stranger's: then all walls that can be stand around them"""
    scratch = Path(tempfile.mkdtemp(prefix="ladder-lab-"))
    try:
        scratch.chmod(0o755)
        # The reference first: nothing of the student's has run that could change it.
        ours = reference_of(build, f"lab_{lab.name}", scratch, "reference")
        references = [whole(f"the reference of lab {lab.number}", measured(ours, f"{seed} reference"), lab.is_extension) for seed in seeds]
        trace = reference_trace(lab, build, scratch, seeds[0]) if program and lab.program else None
        mine = place_of(lab, build, f"lab_{lab.name}", f"labs/{lab.name}/check.cpp", work, scratch, guarded)
        runs, printed = [], ""
        for seed, reference in zip(seeds, references):
            yours = believed(measured(mine, f"{seed} student"), reference, ours, seed)
            runs.append(gates.judge(lab.gates, yours, reference))
            printed += yours.printed
            if yours.ended.startswith("still running"):  # so will it with the next seed
                break
        if trace is not None:
            result, more = run_program(lab, build, work, scratch, seeds[0], trace, guarded)
            runs[0].append(result)
            printed += more
        return runs, printed
    finally:
        sandbox.remove(scratch)


@dataclass
class Place:
    """A program, the folder where it starts, and how it is run there: run(words, **limits)."""

    program: str
    folder: Path
    run: object


def measured(place, given):
    return place.run([place.program], given=given, seconds=20 if given.endswith("student") else 60)


def whole(what, outcome, may_throw=False):
    """The outcome of a program of the tree's, on which nothing of a student's has had an influence.
    @param may_throw whether its cases may: functions of an extension are not written there
    @throws Refused if it did not end well"""
    thrown = [message for _, _, kind, message in outcome.rows if kind == "threw"]
    ended = outcome.ended or ("" if may_throw or not thrown else f"threw {thrown[0]}")
    if ended:
        raise Refused(f"{what} {ended}: {outcome.printed}")
    return outcome


def believed(yours, reference, ours, seed):
    """Where all that is measured follows from what the functions return, the reference's program
    measures that. What the student's says is not believed, but for what was thrown."""
    if not any(kind == "returned" for _, _, kind, _ in reference.rows):
        return yours
    lines = [f"{case}\t{what}\t{words}" for case, what, kind, words in yours.rows if kind == "returned"]
    judged = measured(ours, "\n".join([f"{seed} judge", *lines]))
    sent = {case for case, _, kind, _ in yours.rows if kind == "returned"}
    rows = [row for row in judged.rows if row[0] in sent and row[2] not in ("begin", "end")]
    rows += [row for row in yours.rows if row[2] in ("begin", "threw", "end")]
    return sandbox.Outcome(yours.ended or judged.ended, rows, yours.printed)


def reference_of(build, target, scratch, name):
    folder = scratch / name
    folder.mkdir(parents=True)
    return Place(build.binary(target), folder, partial(sandbox.run, folder=folder))


def place_of(lab, build, target, source, work, scratch, guarded):
    """Compiles `target` with the files of `work`."""
    if guarded and sandbox.has_room():
        built = build.program_in_rooms(target, source, lab, work, scratch)
        room = Room(scratch / f"run-{target}")
        room.put_libraries(build.binary(target))
        room.put_as(built, "/program")
        return Place("/program", room.home, room.run)
    folder = scratch / f"run-{target}"
    folder.mkdir()
    program = build.binary(target) if work is AS_BUILT else build.program(target, source, lab, work, scratch / "build", guarded)
    program.chmod(0o755)
    return Place(program, folder, partial(sandbox.run, folder=folder, isolate=guarded and sandbox.can_isolate()))


def reference_trace(lab, build, scratch, seed):
    lines, outcome = trace_of(lab, build, reference_of(build, f"ch{lab.name}", scratch, "trace"), lab.program["vary"][0], seed)
    whole(f"the reference of lab {lab.number}, ch{lab.name},", outcome)
    return lines


def run_program(lab, build, work, scratch, seed, reference, guarded):
    """The chapter's program with the lab's files, on some number of ranks: the trace is the same for
    all, and that of the reference."""
    gate = next(gate for gate in lab.gates if gate.kind == "trace")
    place = place_of(lab, build, f"ch{lab.name}", f"chapters/{lab.name}/main.cpp", work, scratch, guarded)
    choices = lab.program["vary"]
    lines, outcome = trace_of(lab, build, place, choices[seed % len(choices)], seed)
    result = gates.judge_trace(gate, lines, reference, outcome.ended)
    result.case = f"{lab.program['args']} {choices[seed % len(choices)]}"
    return result, outcome.printed if outcome.ended else ""  # a program that ends well prints its plan and its report


def trace_of(lab, build, place, more, seed):
    """(lines of its --trace, its Outcome) on the weights and the text of a seed"""
    data = put_data(lab, build, place.folder, seed)
    words = [place.program, *lab.program["args"].split(), *more.split(), "--data", data, "--seed", seed, "--trace", "trace.jsonl"]
    outcome = place.run(words, seconds=60)
    return sandbox.lines_of(place.folder / "trace.jsonl"), outcome


def put_data(lab, build, folder, seed):
    """What a program reads: a text; or tasks, with a base that the tree's program has taught. Returns the file's name."""
    if "base" not in lab.program:
        write_for_all(folder / "text.txt", text_to_train_on(seed))
        return "text.txt"
    for name, text in zip(["chats.jsonl", "tasks.jsonl"], tasks_to_train_on(seed)):
        write_for_all(folder / name, text)
    chapter, *args = lab.program["base"].split()
    words = [build.binary(f"ch{chapter}"), *args, "--data", "chats.jsonl", "--seed", seed, "--save", "base"]
    whole(f"the base of lab {lab.number} is not made: ch{chapter}", sandbox.run(words, folder, seconds=60))
    for path in [folder / "base", *(folder / "base").rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755)  # the program may be another user's
    return "tasks.jsonl"


def write_for_all(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
