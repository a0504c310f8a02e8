#!/usr/bin/env python3
"""What a build compiles with GCC is C++ to Clang 16, too.

    clang_syntax.py --build DIR          kernels, common and chapters; DIR has compile_commands.json
    clang_syntax.py --build DIR --all    tests, labs and bench, too: scripts/nightly.sh

No code is made (-fsyntax-only), so this takes minutes where a build takes half an hour. What differs
only when a program runs is for scripts/machines.sh, by night.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLANG = "clang++-16"
SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
BY_DAY = ("kernels", "common", "chapters")


def words_of(entry):
    """Of a command for GCC what changes syntax, and the header that is precompiled ("": none). Levels of
    optimization and warnings do not, but for the warning that is always an error."""
    flags, header, words = [], "", iter(shlex.split(entry["command"])[1:])
    for word in words:
        if word == "-include":
            header = next(words)
        elif word in ("-isystem", "-x"):
            flags += [word, next(words)]
        elif word.startswith(("-D", "-I", "-std", "-m", "-f", "-Werror=")):
            flags.append(word)
    return flags, header


def folder_of(source, build):
    """Of the tree. A source that CMake wrote lies in the same folder of the build."""
    source = Path(source).resolve()
    return source.relative_to(build if source.is_relative_to(build) else ROOT).parts[0]


def compiled(*words):
    """What Clang says against it; "": nothing."""
    # omp.h lies where GCC keeps it: after Clang's own headers.
    gcc = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True).stdout.strip()
    # GCC's omp.h says of an attribute what Clang does not know.
    run = subprocess.run([CLANG, *words, f"-idirafter{gcc}", "-D__malloc__(...)=", "-ferror-limit=3",
                          "-fno-caret-diagnostics", "-Wno-pragma-system-header-outside-header"], capture_output=True, text=True)
    return run.stderr if run.returncode else ""


class Headers:
    """Those that GCC precompiles, made anew for Clang: one of each kind of flags."""

    def __init__(self, folder):
        self.folder, self.made = Path(folder), {}

    def flags(self, header, flags):
        """What takes the header in."""
        if not header:
            return []
        key = (header, *(word for word in flags if not word.startswith(("-D", "-I"))))
        if key not in self.made:
            name = self.folder / f"{len(self.made)}.pch"
            said = compiled(*flags, "-x", "c++-header", header, "-o", str(name))  # of two -x the last counts
            self.made[key] = ["-include", header] if said else ["-include-pch", str(name)]
        return self.made[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    if not shutil.which(CLANG):
        print(f"skipped: no {CLANG} here; scripts/setup.sh installs it on Debian 12")
        sys.exit(SKIPPED)
    entries = json.loads((args.build / "compile_commands.json").read_text(encoding="utf-8"))
    if not args.all:
        entries = [entry for entry in entries if folder_of(entry["file"], args.build.resolve()) in BY_DAY]
    with tempfile.TemporaryDirectory() as folder:
        headers, jobs = Headers(folder), {}
        for entry in entries:
            flags, header = words_of(entry)
            if not entry["file"].endswith("cmake_pch.hxx.cxx"):
                jobs[("-fsyntax-only", *flags, *headers.flags(header, flags), entry["file"])] = None
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = [said for said in pool.map(lambda words: compiled(*words), jobs) if said]
    print(*faults, f"{len(jobs)} sources, {len(faults)} with errors", sep="\n")
    sys.exit(not jobs or bool(faults))


if __name__ == "__main__":
    main()
