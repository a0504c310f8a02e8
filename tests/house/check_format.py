#!/usr/bin/env python3
"""Every source is formatted as .clang-format says: clang-format -i repairs it."""

import re
import shutil
import subprocess

from house import code_files, tell


def check(root):
    if not shutil.which("clang-format"):
        return ["no clang-format here; scripts/setup.sh installs it"]
    sources = code_files(root)
    if not sources:
        return ["no sources found"]
    command = ["clang-format", "--dry-run", "--Werror", *sources]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root)
    bad = re.findall(r"^(.+?):\d+:\d+: error", run.stderr, re.MULTILINE)
    faults = [f"{name}: clang-format would change it" for name in dict.fromkeys(bad)]
    return faults or (run.stderr.splitlines() if run.returncode else [])


if __name__ == "__main__":
    tell(check)
