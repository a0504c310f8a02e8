"""Environments with packages of PyPI: folders in build/clients, each filled once and kept; and the tests
that run in one."""

import argparse
import os
import subprocess
import sys
import unittest
from pathlib import Path

TRANSFORMERS = "transformers>=5,<6"
TORCH = "torch>=2.4"
NEW_ENOUGH = "import torch; assert tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 4)"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SKIPPED = 77


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def call(*command):
    """Skips the test if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        skip(f"'{' '.join(map(str, command[:4]))} ...' failed: {lines[-1]}")


class Packages:
    """A virtual environment with some packages."""

    VENV = []  # flags

    def __init__(self, folder, wanted, data=()):
        """data: packages whose files are wanted, and not what they depend on"""
        self.folder, self.wanted, self.data = Path(folder), list(wanted), list(data)
        self.python = self.folder / "venv/bin/python"
        # Written last, and of other wishes than today's it is another file.
        self.done = self.folder / ("done " + " ".join(self.wanted + self.data))

    def require(self, install):
        """Makes the environment if it may install packages; otherwise skips the test."""
        if self.done.exists():
            return
        if not install:
            skip(f"{', '.join(self.wanted)} are not installed; scripts/nightly.sh --part clients installs them "
                 "and runs this")
        self.folder.mkdir(parents=True, exist_ok=True)
        call(sys.executable, "-m", "venv", *self.VENV, self.folder / "venv")
        self.fill(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.done.touch()

    def fill(self, *pip):
        call(*pip, *self.wanted)
        if self.data:
            call(*pip, "--no-deps", *self.data)


class Environment(Packages):
    """Packages that need PyTorch: the machine's, if that is new enough."""

    VENV = ["--system-site-packages"]

    def fill(self, *pip):
        if subprocess.run([self.python, "-c", NEW_ENOUGH], capture_output=True).returncode != 0:
            call(*pip, TORCH, "numpy")
        call(*pip, *(package for package in self.wanted if package != TORCH))

    def run(self, *command, folder=""):
        """What `python command` prints. folder: where other packages lie"""
        done = subprocess.run([self.python, *command], env={**os.environ, **OFFLINE, "PYTHONPATH": str(folder)},
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout


class ProgramTests(unittest.TestCase):
    """Tests that run chapters' programs. run_inside says where these are."""

    @classmethod
    def call(cls, program, *words):
        done = subprocess.run([cls.programs / program, "--quiet", "--threads", "1", *map(str, words)],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)


def flags():
    """The flags of all tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True, help="a build folder, with bin/")
    parser.add_argument("--install", action="store_true", help="what is missing, from PyPI")
    return parser


def run_tests(tests):
    """@return whether all passed"""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    return unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()


def transformers_of(build):
    """The environment of the tests that need transformers and no more."""
    return Environment(build.resolve().parent / "clients", [TRANSFORMERS, TORCH])


def run_inside(tests, name, wanted, data=(), kind=Packages, **counts):
    """Runs the file once more in an environment with these packages, and there the tests.

    counts: numbers that flags change. They are attributes of the tests, as is `programs`."""
    parser = flags()
    for count, default in counts.items():
        parser.add_argument(f"--{count}", type=int, default=default)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        packages = kind(args.build.resolve().parent / "clients" / name, wanted, data)
        packages.require(args.install)
        sys.exit(subprocess.call([packages.python, "-B", *sys.argv, "--inside"], env={**os.environ, **OFFLINE}))
    tests.programs = args.build.resolve() / "bin"
    for count in counts:
        setattr(tests, count, getattr(args, count))
    sys.exit(0 if run_tests(tests) else 1)
