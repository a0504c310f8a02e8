#!/usr/bin/env python3
"""Labs: write parts of a chapter yourself, and know in seconds whether they are right.

  labs/lab.py list                 all labs, their minutes, and how far you are
  labs/lab.py new NN               writes the files to fill in under work/NN
  labs/lab.py check NN             compiles and measures them
  labs/lab.py check NN --program   and runs the chapter's program with them
  labs/lab.py watch NN             checks whenever a file is saved
  labs/lab.py hint NN              the next hint
  labs/lab.py answer 08.1 VALUE    whether the answer to an exercise is right
  labs/lab.py bug NN NUMBER        find the bug: what a check measures of files with one fault
  labs/lab.py bug NN NUMBER --is K whether it is fault K of the list
  labs/lab.py reset NN --yes       begins again; your files are put aside
  labs/lab.py grade NN --results results.json [--submission DIR] [--seed N]
                                   as an autograder does, in Gradescope's format; the seed that
                                   results.json tells repeats a grading
  labs/lab.py class NN --submissions DIR --results DIR [--jobs N] [--seed N]
                                   grades a folder for each student, and goes on after a stop: grades.csv,
                                   and errors.md, a page of who has made which error
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit("error: labs/lab.py wants Python 3.11 or later, which reads TOML")

sys.path.insert(0, str(Path(__file__).resolve().parent))
from engine import answers, bugs, classroom, grade, judge, transplant  # noqa: E402
from engine.build import Build, DoesNotCompile  # noqa: E402
from engine.desk import Desk, code_lines, pairs, side_by_side  # noqa: E402
from engine.gates import plain, table  # noqa: E402
from engine.labs import ROOT, Refused, all_labs, find  # noqa: E402


LARGEST_SEED = 10**18  # an int64_t, and those that follow it


def list_labs(_, desk):
    for lab in all_labs():
        state = desk.state(lab)
        done = "passed" if state.get("passed") else f"{state['points']:g} of {lab.points:g} points" if "points" in state else ""
        started = done or ("started" if desk.of(lab).is_dir() else "")
        print(f"{lab.number:3}  {lab.minutes:3} min  {started:20} {lab.title}")


def new(args, desk):
    lab = find(args.lab)
    for path in desk.start(lab):
        print(f"wrote {desk.show(path)}")
    print(f"read  {desk.show(lab.folder / 'README.md')}, then {desk.show(desk.of(lab) / 'README.md')}")
    print(f"rules for an assistant, if you use one: {desk.show(desk.of(lab) / 'AGENTS.md')}")
    print(f"then  labs/lab.py check {lab.number}, or watch {lab.number}")
    print("write within the bodies that throw" + (" and between the lines of yours" if lab.is_extension else "; a helper is a lambda in one"))


def check_once(lab, desk, build, program, seed):
    """Compiles, measures, prints. Returns whether everything passes."""
    files = desk.files(lab)
    print("compiling " + ", ".join(desk.show(path) for path in files), flush=True)
    try:
        results, printed, seconds = judge.check(lab, build, desk.of(lab), seed, program)
    except DoesNotCompile as fault:
        print(fault)
        wrong = {Path(line.partition(":")[0]).name for line in str(fault).splitlines() if ": error: expected" in line}
        if wrong and not wrong & {path.name for path in files}:
            print("None of this is in your files: a brace or a semicolon may be missing there.")
        print(f"{lab.name}: does not compile")
        return False
    print(table(results))
    points = sum(result.points for result in results)
    passed = all(result.passed for result in results)
    if printed.strip() and not passed:
        print("your program printed:\n" + "\n".join("  " + line for line in last_lines(printed)))
    most = sum(result.gate.points for result in results)
    print(f"{lab.name}: {points:g} of {most:g} points, {seconds:.1f} s")
    if passed and lab.program and not program:
        print(f"now the whole program: labs/lab.py check {lab.number} --program")
    if program or not lab.program:
        desk.note(lab, points=points, passed=passed or desk.state(lab).get("passed", False))
    for path, mine in zip(lab.files, files):
        for sentence in transplant.left_out(lab, path, mine):
            print(f"grade takes bodies alone, and would say: {sentence}")
    return passed


def last_lines(printed):
    """The last lines of what a program has printed; if it ended with an error, only the error."""
    lines = plain(printed.strip()).splitlines()
    error = next((i for i, line in enumerate(lines) if line.startswith(("error: ", "internal error: "))), 0)
    return lines[error:][-12:]


def compare(lab, desk):
    """The student's functions beside the chapter's."""
    for name, mine, theirs in pairs(lab, desk):
        if mine is None:
            print(f"\n{name}: its first line is another in your file")
            continue
        print(f"\n{name}: yours {code_lines(mine)} lines, the chapter's {code_lines(theirs)}")
        print(side_by_side(mine, theirs, shutil.get_terminal_size((200, 24)).columns))
    print("\n" + lab.notice)


def tell_of_edits(lab):
    """The tree's files are the reference: an edit of theirs that is left from an exercise would be right."""
    if not shutil.which("git"):
        return
    edited = subprocess.run(["git", "diff", "--name-only", "HEAD", "--", *lab.files], cwd=ROOT, capture_output=True, text=True)
    for path in edited.stdout.split():
        print(f"note: {path}, the reference of this lab, is not as it was committed; git diff shows how")


def check(args, desk):
    lab, build = find(args.lab), Build(ROOT, args.build)
    desk.files(lab)
    tell_of_edits(lab)
    build.prepare(judge.targets(lab))
    passed = check_once(lab, desk, build, args.program, args.seed)
    if passed and (args.program or not lab.program):
        compare(lab, desk)
    return 0 if passed else 1


def watch(args, desk):
    lab, build = find(args.lab), Build(ROOT, args.build)
    desk.files(lab)
    tell_of_edits(lab)
    build.prepare(judge.targets(lab))
    seen = None
    try:
        while True:
            try:
                times = [path.stat().st_mtime_ns for path in desk.files(lab)]
            except (Refused, FileNotFoundError):  # some editors take the file away to save it
                times = seen
            if times != seen:
                seen = times
                check_once(lab, desk, build, False, args.seed)
                print("waiting for the next save; Ctrl-C ends", flush=True)
            time.sleep(0.2)
    except KeyboardInterrupt:
        print()


def hint(args, desk):
    lab = find(args.lab)
    shown = desk.state(lab).get("hints", 0)
    if shown < len(lab.hints):
        shown += 1
        desk.note(lab, hints=shown)
    print(f"hint {shown} of {len(lab.hints)}\n\n{lab.hints[shown - 1].read_text(encoding='utf-8').strip()}")


def answer(args, _):
    right, text = answers.judge(args.exercise, args.value)
    print(text)
    return 0 if right else 1


def bug(args, desk):
    lab = find(args.lab)
    bugs.draw(lab, args.number)
    if args.choice is not None:
        right, text = bugs.named(lab, args.number, args.choice)
        print(text)
        if right:
            desk.note(lab, bugs=sorted({*desk.state(lab).get("bugs", []), args.number}))
        return 0 if right else 1
    build = Build(ROOT, args.build)
    build.prepare(judge.targets(lab))
    results, _, _ = bugs.measure(lab, build, args.number, args.seed, args.program)
    print(f"bug {args.number} of lab {lab.number}: files with one fault in them")
    print(table(results))
    print("what differs:", *bugs.rows(results), "which fault is it?", *bugs.choices(lab, args.number), sep="\n")
    print(f"labs/lab.py bug {lab.number} {args.number} --is K names it; --seed 5 measures with other numbers" + ("; --program runs the whole program, too" if lab.program else ""))


def reset(args, desk):
    lab = find(args.lab)
    if not args.yes:
        raise Refused(f"reset puts your files of lab {lab.number} aside and writes new ones; with --yes it does")
    for path in desk.reset(lab):
        print(f"your file is {desk.show(path)}")


def grade_lab(args, desk):
    lab = find(args.lab)
    folder = Path(args.submission) if args.submission else desk.of(lab)
    print(grade.grade(lab, Build(ROOT, args.build), folder, Path(args.results), args.seed))


def grade_class(args, _):
    lab, folder = find(args.lab), Path(args.results)
    failed = classroom.grade_class(lab, Build(ROOT, args.build), Path(args.submissions), folder, args.seed, args.jobs)
    print(f"{folder / 'grades.csv'} has the points, {folder / 'errors.md'} the errors")
    for name, why in failed.items():
        print(f"not graded: {name}: {why}")
    return 1 if failed else 0


def seed(text):
    number = int(text) if re.fullmatch("[0-9]{1,19}", text) else LARGEST_SEED + 1
    if number > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"'{text}'; legal is a whole number from 0 to {LARGEST_SEED}")
    return number


def jobs(text):
    if not re.fullmatch("[1-9][0-9]?", text):
        raise argparse.ArgumentTypeError(f"'{text}'; legal is a whole number from 1 to 99")
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"{message}; labs/lab.py --help")


def arguments():
    parser = Parser(prog="lab.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help="folder of your files, instead of work/")
    parser.add_argument("--build", default=ROOT / "build/cpu", type=lambda p: Path(p).resolve(), help="instead of build/cpu")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, call, *names):
        one = commands.add_parser(name)
        one.set_defaults(call=call)
        for positional in names:
            one.add_argument(positional)
        return one

    command("list", list_labs)
    command("new", new, "lab")
    one = command("check", check, "lab")
    one.add_argument("--program", action="store_true")
    one.add_argument("--seed", type=seed, default=1)
    command("watch", watch, "lab").add_argument("--seed", type=seed, default=1)
    command("hint", hint, "lab")
    one = command("bug", bug, "lab")
    one.add_argument("number", type=int)
    one.add_argument("--is", type=int, dest="choice", metavar="K")
    one.add_argument("--program", action="store_true")
    one.add_argument("--seed", type=seed, default=1)
    command("reset", reset, "lab").add_argument("--yes", action="store_true")
    command("answer", answer, "exercise", "value")
    one = command("grade", grade_lab, "lab")
    one.add_argument("--results", required=True)
    one.add_argument("--submission")
    one.add_argument("--seed", type=seed)
    one = command("class", grade_class, "lab")
    one.add_argument("--submissions", required=True)
    one.add_argument("--results", required=True)
    one.add_argument("--jobs", type=jobs, default=2)
    one.add_argument("--seed", type=seed)
    return parser


def main(words):
    try:
        args = arguments().parse_args(words)
        return args.call(args, Desk(ROOT, args.work)) or 0
    except Refused as refused:
        print(f"lab.py: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except OSError as fault:  # such as a full disk, or a folder that may not be written
        print(f"lab.py: {fault.filename or 'a file'}: {fault.strerror or fault}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
