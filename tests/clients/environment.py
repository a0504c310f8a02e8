"""Environments with packages of PyPI: folders in build/clients, each filled once and kept; and the tests
that run in one."""

import argparse
import os
import subprocess
import sys
import unittest
from pathlib import Path

TRANSFORMERS = ["transformers>=5,<6", "torch>=2.4"]  # of the environment that several tests share
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SKIPPED = 77
QUIET = ["--quiet", "--threads", 1]  # of a chapter's program


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def call(*command):
    """Skips the test if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        skip(f"'{' '.join(map(str, command[:4]))} ...' failed: {lines[-1]}")


def python_with(wanted, data, folder, install):
    """The Python of a virtual environment with these packages. Makes it if it may install them; otherwise skips
    the test."""
    python = folder / "venv/bin/python"
    # Written last, and of other wishes than today's it is another file.
    done = folder / ("done " + " ".join([*wanted, *data]))
    if done.exists():
        return python
    if not install:
        skip(f"{', '.join(wanted)} are not installed; scripts/nightly.sh --part clients installs them and runs this")
    folder.mkdir(parents=True, exist_ok=True)
    call(sys.executable, "-m", "venv", folder / "venv")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call(*pip, *wanted)
    if data:
        call(*pip, "--no-deps", *data)
    done.touch()
    return python


def enter(name, wanted, data=(), **more):
    """Goes on in an environment with these packages: only below this call they can be imported. Returns the flags
    of the test, and the folder `programs`.

    name: of its folder; data: packages that are wanted without those that they depend on; more: flags of this
    test alone, with their defaults"""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True, help="a build folder, with bin/")
    parser.add_argument("--install", action="store_true", help="what is missing, from PyPI")
    for flag, default in more.items():
        parser.add_argument(f"--{flag}", type=type(default), default=default)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        python = python_with(wanted, data, args.build.resolve().parent / "clients" / name, args.install)
        os.execve(python, [python, "-B", *sys.argv, "--inside"], {**os.environ, **OFFLINE})
    args.programs = args.build.resolve() / "bin"
    return args


def called(program, *words):
    """Runs a program that must succeed."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def run(tests):
    """Ends with status 1 if one fails."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    if not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful():
        sys.exit(1)
