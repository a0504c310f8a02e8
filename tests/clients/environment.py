"""An environment with transformers 4 and 5: build/clients, filled from PyPI once and kept.

transformers 4 and 5 want other versions of what they stand on, so each has a folder of its own.
They share one PyTorch: the machine's, if that is new enough.
"""

import os
import subprocess
import sys
from pathlib import Path

WANTED = {"4": "transformers>=4.57,<5", "5": "transformers>=5,<6"}
TORCH = "torch>=2.4"
NEW_ENOUGH = "import torch; assert tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 4)"


class Unavailable(Exception):
    """There is no environment; the text says why."""


def call(*command):
    """@raise Unavailable if it fails"""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"'{' '.join(map(str, command[:4]))} ...' failed: {lines[-1]}")


class Packages:
    """A virtual environment with some packages of PyPI, filled once and kept."""

    def __init__(self, folder, wanted, data=()):
        """data: packages whose files are wanted, and not what they depend on"""
        self.folder, self.wanted, self.data = Path(folder), wanted, list(data)
        self.python = self.folder / "venv/bin/python"
        self.done = self.folder / ("done " + " ".join([*wanted, *data]))

    def require(self, install):
        """Makes it, if it may. @raise Unavailable"""
        if self.done.exists():
            return
        if not install:
            raise Unavailable(f"{', '.join(self.wanted)} are not installed; "
                              "scripts/nightly.sh --part clients installs them and runs this")
        self.folder.mkdir(parents=True, exist_ok=True)
        call(sys.executable, "-m", "venv", self.folder / "venv")
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        call(*pip, *self.wanted)
        if self.data:
            call(*pip, "--no-deps", *self.data)
        self.done.touch()


class Environment:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.python = self.folder / "venv/bin/python"
        # Written last, and of other wishes than today's it is another file.
        self.done = self.folder / ("done " + " ".join([*WANTED.values(), TORCH]))

    def require(self, install):
        """Makes it, if it may. @raise Unavailable"""
        if self.done.exists():
            return
        if not install:
            raise Unavailable("transformers are not installed; scripts/nightly.sh --part clients "
                              "installs them (6 GB) and runs this")
        self.folder.mkdir(parents=True, exist_ok=True)
        call(sys.executable, "-m", "venv", "--system-site-packages", self.folder / "venv")
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([self.python, "-c", NEW_ENOUGH], capture_output=True).returncode != 0:
            call(*pip, TORCH, "numpy")
        for version, wanted in WANTED.items():
            call(*pip, "--target", self.folder / version, "--upgrade", wanted)
        self.done.touch()

    def run(self, version, *command):
        """What `python command` prints with this version of transformers."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder / version),
                       "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run([self.python, *command], env=environment, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise RuntimeError(f"transformers {version}: {done.stderr[-2000:]}")
        return done.stdout
