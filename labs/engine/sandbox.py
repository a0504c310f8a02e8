"""Runs a program that somebody else has written: limited, and without trust.

What it measures comes through a pipe of its own, line by line; what it prints is kept aside. When it
is over, nothing of it is left running. Run by root it has a user of its own and, where a room is
given, that folder for its root.

A disk without room is never the program's fault, whoever has filled it: then nothing has an outcome.
"""

import ctypes
import errno
import functools
import grp
import io
import itertools
import os
import pwd
import re
import resource
import secrets
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

PROCESSES = 100  # and threads: 8 ranks have two each
NUMBERS = range(20000, 60000)  # of users: below are accounts, above what some containers do not have
OPEN_FILES = 256  # what is open and deleted takes room that nobody sees
MOST = 64 << 20  # bytes of a file unless it is a compiler's
MOST_ROWS, MOST_OF_ROWS = 10_000, 16 << 20  # and bytes: no check writes a fifth of it
QUOTA = {"--block-size=1": (512 << 20, "bytes"), "--inodes": (20_000, "files")}  # of a room, by flag of du
LEAST_FREE = {"bytes": 32 << 20, "files": 1000}  # of a disk: with less a file of a check may not fit
LOOK = 0.2  # seconds from one look at a program to the next
SHOWN = 4000  # bytes of what was printed
BECOME_REAPER, NO_NEW_PRIVILEGES = 36, 38  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
NEW_NETWORK, NEW_IPC = 0x40000000, 0x08000000  # CLONE_NEWNET, CLONE_NEWIPC
LIBC = ctypes.CDLL(None)
ROW = re.compile(r"([^\t]*)\t([^\t]*)\t((?:f32|bf16|f16)\t(?:[0-9a-f]{8})*|(?:count|without)\t-?[0-9]{1,18}|(?:text|threw|begin|returned|end)\t[^\t]*)")


@dataclass
class Outcome:
    ended: str = ""  # "" if it ended by itself with status 0
    rows: list = field(default_factory=list)  # (case, gate, kind, value)
    printed: str = ""


def can_isolate():
    return os.geteuid() == 0


def can(action):
    """Whether a process of this one may do it."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@functools.cache
def has_room():
    return can_isolate() and can(lambda: os.chroot("/tmp"))


@functools.cache
def has_own_network():
    return can_isolate() and can(close_network)


@functools.cache
def free_user():
    """A number without account, group and processes, for all that this process runs: processes of that
    number are ended, and no other's may be. No other grading has it meanwhile."""
    used = {owner for _, _, owner in processes()} | {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
    free = [number for number in NUMBERS if number not in used]
    while not reserve(number := secrets.choice(free)):
        free.remove(number)
    return number


RESERVED = []


def reserve(number):
    """Whether this process has the number from now until it ends: the name of a socket can be taken once."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0ladder-user-{number}")
    except OSError:
        name.close()
        return False
    RESERVED.append(name)
    return True


def missing():
    """The walls that are not there, in plain words."""
    if not can_isolate():
        return "Not run by root: compiler and program had the rights of the grader, and could read what it reads."
    walls = [] if has_room() else ["Root may not chroot here: compiler and program could read what any user of this machine reads."]
    walls += [] if has_own_network() else ["Root may not unshare here: the program could use the network."]
    return "\n".join(walls)


def close_network():
    if LIBC.unshare(NEW_NETWORK | NEW_IPC) != 0:
        raise OSError("unshare")


def run(argv, folder, given="", seconds=20, megabytes=2048, isolate=False, room=None, start=None, most=MOST):
    """@param folder where it runs; with `isolate` it becomes the program's own
    @param given what follows on its standard input behind the descriptor that rows go to
    @param room  its root: `folder` is in it
    @param start where in the room it begins, instead of `folder`"""
    user = free_user() if isolate else None
    owned = [folder, *([Path(room) / "tmp"] if room else [])] if isolate else []
    if isolate:
        for path in owned:
            os.chown(path, user, user)
            os.chmod(path, 0o700)
    limits = {resource.RLIMIT_CPU: 4 * seconds, resource.RLIMIT_AS: megabytes << 20, resource.RLIMIT_FSIZE: most, resource.RLIMIT_NOFILE: OPEN_FILES}
    begin = start or (os.path.join("/", Path(folder).relative_to(room)) if room else folder)
    own_network = isolate and has_own_network()
    LIBC.prctl(BECOME_REAPER, 1, 0, 0, 0)
    rows, to = os.pipe()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.PIPE, stdout=printed, stderr=printed,
            pass_fds=(to,), start_new_session=True, env=environment(room),
            preexec_fn=lambda: enter(limits, user, own_network, room, begin),
        )  # fmt: skip
        os.close(to)
        arrived = []
        reader = threading.Thread(target=receive, args=(rows, arrived), daemon=True)
        reader.start()
        try:
            give(process, f"{to} {given}\n")
            ended = wait(process, seconds, owned, folder)
        finally:  # also if Ctrl-C ends this process
            end_all(user)
            process.poll()
        reader.join(5)  # nobody is left who could write
        os.close(rows)
        return Outcome(ended, parse(b"".join(arrived)), shown(printed))


def give(process, text):
    try:
        process.stdin.write(text.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass


def receive(rows, arrived):
    """Reads what comes, up to a limit. After that the writer waits until its time is over."""
    left = MOST_OF_ROWS
    while left > 0 and (block := os.read(rows, min(left, 1 << 16))):
        arrived.append(block)
        left -= len(block)


def shown(printed):
    """The begin and the end of a file."""
    size = os.fstat(printed.fileno()).st_size
    printed.seek(0)
    text = printed.read(SHOWN).decode(errors="replace")
    printed.seek(max(printed.tell(), size - SHOWN))
    return text + ("\n...\n" if size > 2 * SHOWN else "") + printed.read().decode(errors="replace")


def environment(room):
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return {**kept, "OMP_WAIT_POLICY": "passive", **({"TMPDIR": "/tmp"} if room else {})}


def enter(limits, user, own_network, room, folder):
    """Runs in the child, before the program starts."""
    others = 0 if user else tasks_of(os.getuid())
    for what, most in {**limits, resource.RLIMIT_CORE: 0, resource.RLIMIT_NPROC: others + PROCESSES}.items():
        resource.setrlimit(what, (most, most))
    if own_network:
        close_network()
    if room:
        os.chroot(room)
    os.chdir(folder)
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
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


def wait(process, seconds, owned, disk):
    """How it ended. @param owned folders that it can fill
    @param disk where it may write. @throws OSError if there is no room"""
    deadline = time.monotonic() + seconds
    ended = ""
    while process.poll() is None and not ended:
        try:
            process.wait(timeout=max(0, min(LOOK, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            ended = f"still running after {seconds} s" if time.monotonic() >= deadline else overdrawn(owned)
            demand_room(disk)
    demand_room(disk)
    if ended:
        process.kill()
        process.wait()
        return ended
    if process.returncode < 0:
        names = {each.value: each.name for each in signal.Signals}  # of some there is none
        return f"ended by {names.get(-process.returncode, f'signal {-process.returncode}')}"
    return f"ended with status {process.returncode}" if process.returncode else ""


def overdrawn(folders):
    """What a program has too much of, in words. It may make files as fast as they are counted."""
    for flag, (most, what) in QUOTA.items() if folders else []:
        try:
            counted = subprocess.run(["du", "-sc", flag, "--", *folders], capture_output=True, timeout=5).stdout.split()
        except subprocess.TimeoutExpired:
            counted = []
        if not counted or int(counted[-2]) > most:
            return f"ended: its files have more than {most:,} {what}"
    return ""


def demand_room(folder):
    """@throws OSError if the disk of a folder is full, or nearly"""
    disk = os.statvfs(folder)
    free = {"bytes": disk.f_bavail * disk.f_frsize, "files": disk.f_favail if disk.f_files else LEAST_FREE["files"]}
    if any(free[what] < least for what, least in LEAST_FREE.items()):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


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


def parse(text):
    """Rows as a check writes them; what is no row is not believed, and does not trouble us."""
    lines = itertools.islice(io.BytesIO(text), MOST_ROWS)
    found = (ROW.fullmatch(line.decode(errors="replace").removesuffix("\n")) for line in lines)
    return [(row[1], row[2], *row[3].split("\t")) for row in found if row]


def remove(folder):
    """Deletes a folder. A program may have made more folders in folders than shutil.rmtree() takes."""
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL)


def lines_of(path):
    """Lines of a file that the program has written, if it is a plain one and no way to another's."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(MOST).decode(errors="replace").splitlines() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else []
    except OSError:
        return []
