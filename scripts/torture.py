#!/usr/bin/env python3
"""All parts of scripts/torture.sh, which says what they are; the table that they make."""

import argparse
import collections
import fcntl
import json
import os
import platform
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

from measure import commit

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "torture.md"
CHAPTERS = {"02": [], "10": ["--ranks", "2"], "28": ["--ranks", "2"]}  # that save, with their flags
# A small model; a step takes a few milliseconds, and a save not much more.
MODEL = "--model nano --layers 1 --channels 16 --heads 2 --batch 4 --threads 1 --quiet".split()
SAVED, STEPS, LAST = 2, 4, 9  # steps of the checkpoint that is there; of the tried run; of the check
SECONDS = 300                 # nothing here may take as long, on a disk that is busy with a build
# What a save may use: of files, directories and links, and of what has been opened.
NAMES = ("openat read pread64 write pwrite64 fsync fdatasync close rename renameat renameat2 unlink unlinkat rmdir mkdir "
         "mkdirat symlink symlinkat link linkat flock fcntl newfstatat fstat statx access faccessat2 readlink readlinkat "
         "getdents64 ftruncate fchmod fchown lseek mmap").split()
ERRORS = ["EIO", "ENOSPC", "EACCES"]
STRACE = ["strace", "-f", "-qq"]
SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH


class Skipped(Exception):
    """This machine does not allow a part; the reason in words."""


class Trial:
    """A program, its uninterrupted trace, and a directory with a checkpoint for each trial."""

    def __init__(self, build, chapter, flags):
        self.work = ROOT / "runs" / "torture" / chapter
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        text = self.work / "text.txt"
        text.write_text("".join(f"{n}\n" for n in range(100_000, 100_701)))
        self.command = [str(min((build / "bin").glob(f"ch{chapter}_*"))), "--data", str(text), *MODEL, *flags]
        self.saving = ["--async"] if chapter == "28" else []
        self.pristine, trace = self.work / "pristine", self.work / "reference"
        for words in (["--steps", SAVED, "--save", self.pristine, *self.saving], ["--steps", LAST, "--trace", trace]):
            done = self.run(words)
            if done.returncode != 0:
                raise SystemExit(f"torture: {words} ended with {done.returncode}: {done.stderr}")
        self.reference = trace.read_text().splitlines()
        self.entries = len(list(self.pristine.rglob("*")))

    def run(self, words, before=()):
        return subprocess.run([*map(str, before), *self.command, *map(str, words)], capture_output=True, text=True,
                              errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL)

    def directory(self, name="trial"):
        """A fresh directory with the checkpoint after SAVED steps."""
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.pristine, path, symlinks=True)
        return path

    def resumed(self, directory):
        """Flags of a run that goes on from the directory and saves there after each step."""
        return ["--load", directory, "--save", directory, "--save-every", 1, "--steps", STEPS, *self.saving]

    def killed(self, directory, seconds, cut=lambda: None):
        """Lets a run go on from the directory, and ends it after so long."""
        process = subprocess.Popen([*self.command, *map(str, self.resumed(directory))], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        cut()
        process.kill()
        process.wait()

    def problem(self, directory):
        """What is wrong with the directory; nothing if a run goes on from it as if uninterrupted. The next save must
        also leave no file that it should not."""
        trace = self.work / "trace"
        trace.unlink(missing_ok=True)
        done = self.run(["--load", directory, "--save", directory, "--steps", LAST, "--trace", trace, *self.saving])
        if done.returncode != 0:
            return f"does not load, status {done.returncode}: {done.stderr.strip()}"
        lines = trace.read_text().splitlines()
        if not 0 < len(lines) <= LAST - SAVED:
            return f"{len(lines)} steps were left, not 1 to {LAST - SAVED}"
        if lines != self.reference[-len(lines):]:
            return f"the run that goes on at step {json.loads(lines[0])['step']} has another trace"
        left = len(list(directory.rglob("*")))
        return "" if left == self.entries else f"{left} files after the next save, not {self.entries}"


def spread(items, count):
    return items if count >= len(items) else [items[i * len(items) // count] for i in range(count)]


def kills(trials, count, moment):
    """kill -9 at random moments."""
    lengths = []
    for trial in trials:
        begin = time.monotonic()
        trial.run(trial.resumed(trial.directory()))
        lengths.append(time.monotonic() - begin)
    for i in range(count):
        trial, seconds = trials[i % len(trials)], moment.uniform(0, lengths[i % len(trials)])
        directory = trial.directory()
        trial.killed(directory, seconds)
        yield f"{Path(trial.command[0]).name} after {seconds * 1e3:.1f} ms", trial.problem(directory)


def power(trials, count, moment):
    """The file system is cut off, then mounted again with what its log has."""
    image, at = trials[0].work / "disk", trials[0].work / "mounted"
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise Skipped("not root, or no mkfs.ext4")
    at.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)

    def mount():
        done = subprocess.run(["mount", "-o", "loop", image, at], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"no loop device: {done.stderr.strip()}")

    def cut():
        here = os.open(at, os.O_RDONLY)
        try:
            fcntl.ioctl(here, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(here)

    mount()
    try:
        for i in range(count):
            trial, directory = trials[i % len(trials)], at / "trial"
            shutil.copytree(trial.pristine, directory, symlinks=True)
            os.sync()
            trial.killed(directory, moment.uniform(0, 0.3), cut)
            subprocess.run(["umount", at], check=True)
            mount()
            copy = trial.work / "after"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.move(directory, copy)
            yield f"cut {i}", trial.problem(copy)
    finally:
        subprocess.run(["umount", at], check=True)


def system_calls(trial):
    """(name, n) of each system call from where the text is opened: those before are the loader's. strace counts from 1,
    for each name and each thread by itself."""
    log = trial.work / "strace.log"
    if not shutil.which("strace"):
        raise Skipped("no strace here")
    done = trial.run(trial.resumed(trial.directory()), [*STRACE, "-o", log, "-e", f"trace={','.join(NAMES)}"])
    if done.returncode != 0:
        raise Skipped(f"strace does not run: {done.stderr.strip()[-200:]}")
    seen, found, of_loader = collections.Counter(), {}, None
    for line in log.read_text(errors="replace").splitlines():
        call = re.match(r"(\d+) +(\w+)\(", line)
        if call and of_loader is None and "text.txt" in line:
            of_loader = {name: n for (_, name), n in seen.items()}
        if call:
            seen[call.groups()] += 1
            if of_loader is not None and seen[call.groups()] > of_loader.get(call[2], 0):
                found[call[2], seen[call.groups()]] = None
    return list(found)


def planted(trials, count, faults):
    """Each fault at each system call, in turn: (label, how the run ended, what strace wrote, what is wrong)."""
    plan = [(trial, name, n, fault) for trial in trials for name, n in system_calls(trial) for fault in faults]
    for trial, name, n, fault in spread(plan, count):
        directory, log = trial.directory(), trial.work / "injected.log"
        done = trial.run(trial.resumed(directory), [*STRACE, "-o", log, "-e", f"inject={name}:{fault}:when={n}"])
        yield f"{fault} at {name} {n}", done, log.read_text(errors="replace"), trial.problem(directory)


def calls(trials, count, _):
    """A kill at each system call of any thread."""
    for label, _, _, problem in planted(trials, count, ["signal=KILL"]):
        yield label, problem


def errors(trials, count, _):
    """An error from each system call. The program ends with a line, or does without it."""
    for label, done, log, problem in planted(trials, count, [f"error={error}" for error in ERRORS]):
        said = done.stderr.strip()
        silenced = re.search(r"write\(2, .*INJECTED", log)
        if done.returncode not in (0, 2, 3) or "internal error" in said or not (said or silenced or done.returncode == 0):
            problem = f"status {done.returncode}: {said[-200:]}"
        yield label, problem


# Part, trials of a whole run and of a short one, what the page says of it. The long parts come last.
PARTS = [(kills, 450, 15, "`kill -9` at a random moment"),
         (power, 300, 9, "the file system is cut off without its log, then mounted again"),
         (calls, 10**6, 48, "`kill -9` at a system call of any thread, each in turn"),
         (errors, 10**6, 72, "a system call of any thread that fails (EIO, ENOSPC, EACCES), each in turn")]


def run(part, trials, count, seed):
    """(trials, what was wrong, why it was skipped)"""
    number, wrong, skipped = 0, [], ""
    try:
        for label, problem in part(trials, count, random.Random(f"{part.__name__} {seed}")):
            number += 1
            if problem:
                wrong.append(f"{part.__name__}: {label}: {problem}")
                print(wrong[-1], flush=True)
    except Skipped as why:
        skipped = str(why)
    print(f"torture: {part.__name__}: {number} trials, {f'skipped: {skipped}' if skipped else f'{len(wrong)} wrong'}", flush=True)
    return number, wrong, skipped


def page(results, seed):
    rows = [f"| {told} | {number} | {skipped or len(wrong)} |" for (*_, told), (number, wrong, skipped) in zip(PARTS, results)]
    return "\n".join([
        "# What a checkpoint survives", "",
        "After each trial the directory of `--save` must hold one whole checkpoint. The run that goes on from it must have "
        "the trace of a run that was never interrupted, and the next save must leave no stray file.", "",
        f"`scripts/torture.sh --seed {seed}`, commit {commit()}, {platform.system()} {platform.release()}:", "",
        "| trial | how many | wrong |", "|---|---|---|", *rows, *["", *(f"- {line}" for _, wrong, _ in results for line in wrong)], ""])


def main():
    parser = argparse.ArgumentParser(prog="torture.sh", description=__doc__)
    parser.error = lambda message: sys.exit(print(f"torture.sh: {message}; --help lists the flags", file=sys.stderr) or 2)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "cpu")
    parser.add_argument("--part", choices=[part.__name__ for part, *_ in PARTS])
    parser.add_argument("--short", action="store_true", help="a few trials of each part")
    parser.add_argument("--seed", type=int, default=1, help="of random moments")
    args = parser.parse_args()
    missing = [chapter for chapter in CHAPTERS if not any((args.build / "bin").glob(f"ch{chapter}_*"))]
    if missing:
        print(f"torture.sh: --build {args.build}: no program of chapters {', '.join(missing)} in its folder bin", file=sys.stderr)
        return 2
    trials = [Trial(args.build, chapter, flags) for chapter, flags in CHAPTERS.items()]
    results = [run(part, trials, short if args.short else whole, args.seed) for part, whole, short, _ in PARTS
               if args.part in (None, part.__name__)]
    if not args.short and not args.part:
        PAGE.write_text(page(results, args.seed))
    return 1 if any(wrong for _, wrong, _ in results) or all(skipped for *_, skipped in results) else 0


if __name__ == "__main__":
    sys.exit(main())
