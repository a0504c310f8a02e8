"""What all trials share: the program that is tried, its directory, and what must hold afterwards."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# A small model; a step takes a few milliseconds, and a save not much more.
MODEL = ["--model", "nano", "--layers", "1", "--channels", "16", "--heads", "2",
         "--batch", "4"]
SAVED, STEPS, LAST = 2, 6, 9  # steps of the checkpoint that is there; of the tried run; of the check
SECONDS = 300                 # nothing here may take as long, on a disk that is busy with a build
# 0: done, or nothing that mattered failed. 2: one line said why. 3: trained, but did not save.
LEGAL = {0, 2, 3}


class Skipped(Exception):
    """This machine does not allow a part; the reason in words."""


@dataclass
class Result:
    """The result of one part: how many trials there were, and what was wrong."""
    name: str
    trials: int = 0
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    interrupted: bool = False
    latest = None  # the part that is under way

    def __post_init__(self):
        Result.latest = self

    def add(self, label, problem):
        self.trials += 1
        if problem:
            self.wrong.append(f"{label}: {problem}")
            print(f"{self.name}: {label}: {problem}", flush=True)


@dataclass
class Program:
    """A chapter's program with flags that never change."""
    path: Path
    flags: list[str]

    def command(self, *words):
        return [str(self.path), *self.flags, *map(str, words)]

    def run(self, *words, **how):
        return subprocess.run(self.command(*words), capture_output=True, text=True, errors="replace",
                              timeout=SECONDS, stdin=subprocess.DEVNULL, **how)

    def start(self, *words, **how):
        """Starts it in a session of its own, so that kill() ends all of it. Does not wait for it."""
        return subprocess.Popen(self.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True, **how)


class Trial:
    """A program, its uninterrupted trace, and a directory with a checkpoint for each trial."""

    def __init__(self, build, work, chapter, *flags, saving=()):
        self.saving = saving  # flags of runs that save
        self.work = work / chapter
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        text = self.work / "text.txt"
        text.write_text("".join(f"{n}\n" for n in range(100_000, 100_701)))
        program = min((build / "bin").glob(f"ch{chapter}_*"))
        self.program = Program(program, ["--data", str(text), *MODEL, "--threads", "1", "--quiet",
                                          *flags])
        self.pristine = self.work / "pristine"
        self.must("--steps", SAVED, "--save", self.pristine, *saving)
        trace = self.work / "reference"
        self.must("--steps", LAST, "--trace", trace)
        self.reference = trace.read_text().splitlines()
        self.entries = len(list(self.pristine.rglob("*")))
        self.count = 0

    def must(self, *words):
        done = self.program.run(*words)
        if done.returncode != 0:
            raise SystemExit(f"torture: {words} ended with {done.returncode}: {done.stderr}")

    def directory(self):
        """A fresh directory with the checkpoint after SAVED steps."""
        self.count += 1
        path = self.work / f"trial-{self.count}"
        shutil.copytree(self.pristine, path, symlinks=True)
        return path

    def resumed(self, directory, steps=STEPS):
        """Flags of a run that goes on from the directory and saves there after each step."""
        return ["--load", directory, "--save", directory, "--save-every", 1, "--steps", steps,
                *self.saving]

    def problem(self, directory, least=SAVED):
        """What is wrong with the directory; nothing if a run goes on from it as if uninterrupted.
        The next save must also leave no file that it should not. Removes the directory if it is
        right."""
        trace = self.work / "trace"
        trace.unlink(missing_ok=True)
        try:
            done = self.program.run("--load", directory, "--save", directory, "--steps", LAST,
                                    "--trace", trace, *self.saving)
        except subprocess.TimeoutExpired:
            return f"the run that goes on from it still runs after {SECONDS} s"
        if done.returncode != 0:
            return f"does not load, status {done.returncode}: {done.stderr.strip()}"
        lines = trace.read_text().splitlines()
        if not 0 < len(lines) <= LAST - least:
            return f"{len(lines)} steps were left, not 1 to {LAST - least}"
        if lines != self.reference[-len(lines):]:
            step = json.loads(lines[0])["step"]
            return f"the run that goes on at step {step} has another trace"
        left = len(list(directory.rglob("*")))
        if left != self.entries:
            return f"{left} files after the next save, not {self.entries}"
        shutil.rmtree(directory)
        return ""


def ended_badly(done):
    """Whether a program ended in a way that it never may, by its status and its last words."""
    if done.returncode not in LEGAL:
        return f"status {done.returncode}: {done.stderr.strip()[-200:]}"
    if "internal error" in done.stderr:
        return f"internal error: {done.stderr.strip()[-200:]}"
    if done.returncode != 0 and not done.stderr.strip():
        return f"status {done.returncode} without a word"
    return ""


def kill(process):
    """SIGKILL to the process and to all that it started in its session."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()
