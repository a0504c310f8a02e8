"""A kill, or an error, at each system call of a run that saves; strace plants them."""

import collections
import re
import shutil
import subprocess

from trial import LEGAL, SECONDS, Result, Skipped, ended_badly

# All that a save may use: of files, directories and links, and of what has been opened.
NAMES = ["openat", "read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "close", "rename",
         "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink",
         "symlinkat", "link", "linkat", "flock", "fcntl", "newfstatat", "fstat", "statx", "access",
         "faccessat2", "readlink", "readlinkat", "getdents64", "ftruncate", "fchmod", "fchown",
         "lseek", "mmap"]
ERRORS = ["EIO", "ENOSPC", "EACCES"]
STRACE = ["strace", "-f", "-qq"]


def system_calls(trial):
    """(name, n) of each system call from where the text is opened: those before are the loader's.
    strace counts from 1, for each name and each thread by itself. What it plants in call n of a thread
    it plants in call n of the loader, too: these are left out."""
    if not shutil.which("strace"):
        raise Skipped("no strace here")
    log = trial.work / "strace.log"
    directory = trial.directory()
    command = [*STRACE, "-o", log, "-e", f"trace={','.join(NAMES)}",
               *trial.program.command(*trial.resumed(directory, STEPS_TRACED))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"strace does not run: {(done.stderr.strip().splitlines() or [''])[-1]}")
    seen, found, of_loader = collections.Counter(), {}, None
    for line in log.read_text(errors="replace").splitlines():
        call = re.match(r"(\d+) +(\w+)\(", line)
        if not call:
            continue
        if of_loader is None and "text.txt" in line:
            of_loader = {name: n for (_, name), n in seen.items()}
        seen[call.groups()] += 1
        n = seen[call.groups()]
        if of_loader is not None and n > of_loader.get(call[2], 0):
            found[call[2], n] = None
    return list(found)


STEPS_TRACED = 4  # two saves: the first also finds what a former program left


def chosen(items, count):
    """`count` of the items, evenly spread; all if there are not more."""
    if count >= len(items):
        return items
    return [items[i * len(items) // count] for i in range(count)]


def plant(result, trial, label, injection, fault_of):
    """Adds a trial in which strace injects something. fault_of: what is wrong with how the run ended."""
    directory = trial.directory()
    command = [*STRACE, "-o", trial.work / "injected.log", "-e", f"inject={injection}",
               *trial.program.command(*trial.resumed(directory, STEPS_TRACED))]
    try:
        problem = fault_of(subprocess.run(command, capture_output=True, text=True, errors="replace",
                                          timeout=SECONDS))
    except subprocess.TimeoutExpired:
        problem = "hangs"
    result.add(label, problem or trial.problem(directory))


def calls(trials, count, random):
    """A kill at each system call: of one rank, of two, and of threads that write beside the run."""
    result = Result("calls")
    plan = [(trial, *call) for trial in trials for call in system_calls(trial)]
    for trial, name, n in chosen(plan, count):
        plant(result, trial, f"killed at {name} {n}", f"{name}:signal=KILL:when={n}", lambda done: "")
    return result


def silenced(trial):
    """Whether the write of the line on stderr failed: strace counts the calls of each thread by itself."""
    log = (trial.work / "injected.log").read_text(errors="replace")
    return re.search(r"write\(2, .*INJECTED", log)


def errors(trials, count, random):
    """An error from each system call. The program ends with a line, or does without it."""
    result = Result("errors")
    plan = [(trial, *call, error) for trial in trials
            for call in system_calls(trial) for error in ERRORS]
    for trial, name, n, error in chosen(plan, count):
        plant(result, trial, f"{error} from {name} {n}", f"{name}:error={error}:when={n}",
              lambda done, trial=trial: "" if silenced(trial) and done.returncode in LEGAL else ended_badly(done))
    return result
