"""Two programs that save into one directory, on a slow disk, until one is killed."""

import os
import shutil
import subprocess
import time

from trial import LAST, SECONDS, Result, Skipped, kill

# A disk whose fsync takes its time; the seed makes each program's another.
SLOW_FSYNC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int fd) {
  static int (*real)(int);
  static unsigned state;
  if (!real) {
    real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    state = (unsigned)atoi(getenv("SLOW_FSYNC_SEED"));
  }
  usleep(rand_r(&state) % 30000);
  return real(fd);
}
"""


def slow_disk(work):
    """A library to preload."""
    if not shutil.which("cc"):
        raise Skipped("no C compiler here")
    source, library = work / "slow_fsync.c", work / "slow_fsync.so"
    source.write_text(SLOW_FSYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def writers(trials, count, random):
    """`count` pairs of programs. Both train the same model, so any checkpoint is of one trace."""
    trial = trials[0]
    library = slow_disk(trial.work)
    result = Result("writers")
    for i in range(count):
        directory = trial.directory()
        pair = []
        for seed in (1, 2):
            slow = {**os.environ, "LD_PRELOAD": str(library),
                    "SLOW_FSYNC_SEED": str(2 * i + seed)}
            pair.append(trial.program.start(*trial.resumed(directory, LAST - 1), env=slow))
        time.sleep(random.uniform(0, 1))
        kill(pair[i % 2])
        try:
            pair[1 - i % 2].wait(timeout=SECONDS)
            problem = ""
        except subprocess.TimeoutExpired:
            kill(pair[1 - i % 2])
            problem = "the other one hangs"
        result.add(f"pair {i}", problem or trial.problem(directory))
    return result
