"""Ranks that were started differently, that stall or die: all must end, and say why."""

import os
import shlex
import shutil
import subprocess
import time

from calls import chosen
from trial import SECONDS, Result, Skipped

# What the second of two processes gets instead.
DIFFERENT = ["--seed 2", "--lr 0.5", "--optimizer lion", "--precision bf16", "--clip 0.5",
             "--steps 7", "--eval-every 1", "--batch 8", "--micro-batch 1", "--layers 2",
             "--data {other_text}", "--load {other_checkpoint}"]
FAULTS = ["stall:all_reduce:3", "stall:reduce_scatter:2", "stall:all_gather:4",
          "die:all_reduce:3", "die:reduce_scatter:2"]


def ranks(trials, count, random):
    """Each flag and each fault once."""
    trial = trials[1]
    if not shutil.which("mpirun"):
        raise Skipped("no mpirun here")
    result = Result("ranks")
    other_text = trial.work / "other.txt"
    other_text.write_text((trial.work / "text.txt").read_text().replace("1", "7"))
    other = trial.work / "other"
    trial.must("--steps", 3, "--save", other, "--overwrite")
    cases = [("differ", flag.format(other_text=other_text, other_checkpoint=other))
             for flag in DIFFERENT]
    cases += [("fault", fault) for fault in FAULTS]
    for kind, words in chosen(cases, count):
        command = differing(trial, words) if kind == "differ" else faulty(trial, words)
        result.add(words, problem(kind, words, command))
    return result


MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


def differing(trial, words):
    """Two processes, of which the second has other flags, too."""
    one = [str(word) for word in trial.program.command("--steps", "6", "--load", trial.pristine)]
    other = replaced(one, words.split())
    # Each chooses by its rank: `mpirun A : B` ends in a segmentation fault of Open MPI 5.0.7.
    choose = (f"[ $OMPI_COMM_WORLD_RANK = 0 ] && exec {shlex.join(one)}\n"
              f"exec {shlex.join(other)}")
    return [*MPIRUN, "-n", "2", "sh", "-c", choose]


def replaced(command, flag):
    """`command` with another value of the flag, or with the flag."""
    command = list(command)
    if flag[0] in command:
        command[command.index(flag[0]) + 1] = flag[1]
        return command
    return command + flag


def faulty(trial, fault):
    return [*MPIRUN, "-n", "2",
            *trial.program.command("--steps", "6", "--fault", fault, "--timeout", "3")]


def problem(kind, words, command):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"still runs after {time.monotonic() - begin:.0f} s"
    if kind == "differ":
        if done.returncode != 2 or words.split()[0] not in done.stderr:
            return f"status {done.returncode}: {done.stderr.strip()[:200]}"
        return ""
    operation = words.split(":")[1]
    if done.returncode == 0 or (words.startswith("stall") and operation not in done.stderr):
        return f"status {done.returncode}: {done.stderr.strip()[:200]}"
    return ""
