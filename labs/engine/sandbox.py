"""Runs a program that somebody else has written: limited, and without trust.

What it measures comes through a descriptor of its own, line by line behind a token; what it prints
is kept aside. When it is over, nothing of it is left running.
"""

import ctypes
import os
import resource
import secrets
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

PROCESSES = 100  # and threads: 8 ranks have two each
BECOME_REAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become children of this process


@dataclass
class Outcome:
    ended: str = ""  # "" if it ended by itself with status 0
    rows: list = field(default_factory=list)  # (case, gate, kind, value)
    printed: str = ""


def can_isolate():
    return os.geteuid() == 0


def run(argv, folder, seed=None, seconds=20, megabytes=2048, isolate=False, env=None):
    """@param folder where it runs; with `isolate` it becomes the program's own
    @param seed of a check, which gets it with a token on its standard input"""
    token = secrets.token_hex(16)
    user = 60000 + os.getpid() % 5000 if isolate else None
    if isolate:
        os.chown(folder, user, user)
    ctypes.CDLL(None).prctl(BECOME_REAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as rows, tempfile.TemporaryFile() as printed:
        given = f"{rows.fileno()} {token} {seed}\n" if seed is not None else ""
        process = subprocess.Popen(
            [str(word) for word in argv], cwd=folder, stdin=subprocess.PIPE, stdout=printed, stderr=printed,
            pass_fds=(rows.fileno(),), start_new_session=True, env=environment(env),
            preexec_fn=lambda: limit(seconds, megabytes, user),
        )  # fmt: skip
        try:
            process.stdin.write(given.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass
        ended = wait(process, seconds)
        end_all(user)
        rows.seek(0)
        printed.seek(max(0, os.fstat(printed.fileno()).st_size - 4000))
        text = printed.read().decode(errors="replace")
        return Outcome(ended, parse(rows.read().decode(errors="replace"), token), text)


def environment(more):
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return {**kept, "OMP_WAIT_POLICY": "passive", **(more or {})}


def limit(seconds, megabytes, user):
    """In the child, before the program starts."""
    others = 0 if user else tasks_of(os.getuid())
    for what, most in [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, 4 * seconds),
        (resource.RLIMIT_AS, megabytes << 20),
        (resource.RLIMIT_FSIZE, 64 << 20),
        (resource.RLIMIT_NPROC, others + PROCESSES),
    ]:
        resource.setrlimit(what, (most, most))
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    os.umask(0o077)


def tasks_of(user):
    """Processes and threads of a user: what RLIMIT_NPROC counts."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                count += len(list((folder / "task").iterdir()))
        except OSError:
            pass
    return count


def wait(process, seconds):
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"still running after {seconds} s"
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"ended with status {status}" if status else ""


def end_all(user):
    """Ends what the program has started, by its number: descendants of this process, which the
    orphans among them have become; and what runs as the program's user."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = descendants(os.getpid(), user)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.01)


def descendants(ancestor, user):
    """Processes below `ancestor`, and those of `user`."""
    found, before, table = {ancestor}, 0, list(processes())
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, parent, owner in table if parent in found or owner == user}
    return found - {ancestor}


def processes():
    """(number, parent, user) of all processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            yield int(folder.name), int(after_name[1]), folder.stat().st_uid
        except OSError:
            pass


def parse(text, token):
    """Rows that carry the token; others are not ours."""
    rows = []
    for line in text.splitlines():
        fields = line.split("\t", 4)
        if len(fields) == 5 and secrets.compare_digest(fields[0].encode(), token.encode()):
            rows.append(tuple(fields[1:]))
    return rows
