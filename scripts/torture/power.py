"""A disk that loses its power while a program saves: what was not on it is gone, log and all."""

import fcntl
import os
import shutil
import struct
import subprocess
import time

from trial import Result, Skipped, kill

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32)
WITHOUT_LOG = 2        # EXT4_GOING_FLAGS_NOLOGFLUSH


class Disk:
    """A file system in a file, mounted at `at`."""

    def __init__(self, work):
        self.image, self.at = work / "disk", work / "mounted"
        self.at.mkdir()
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
            raise Skipped("not root, or no mkfs.ext4")
        with open(self.image, "wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        self.mount()

    def mount(self):
        done = subprocess.run(["mount", "-o", "loop", self.image, self.at], capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise Skipped(f"no loop device: {done.stderr.strip()}")

    def unmount(self):
        subprocess.run(["umount", self.at], check=True)

    def cut(self):
        """From now on nothing reaches the disk, and each call fails."""
        here = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(here, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        except OSError as error:
            raise Skipped(f"no way to cut a disk off: {error}") from error
        finally:
            os.close(here)


def power(trials, count, random):
    """`count` cuts, then a mount that replays what the log of the file system has."""
    result = Result("power")
    disk = Disk(trials[0].work)
    try:
        for i in range(count):
            trial = trials[i % len(trials)]
            directory = disk.at / f"trial-{i}"
            shutil.copytree(trial.pristine, directory, symlinks=True)
            os.sync()
            process = trial.program.start(*trial.resumed(directory))
            time.sleep(random.uniform(0, 0.3))
            disk.cut()
            kill(process)
            disk.unmount()
            disk.mount()
            copy = trial.work / f"after-power-{i}"
            shutil.copytree(directory, copy, symlinks=True)
            shutil.rmtree(directory)
            result.add(f"cut {i}", trial.problem(copy))
    finally:
        disk.unmount()
    return result
