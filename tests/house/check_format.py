#!/usr/bin/env python3
"""Every source is formatted as .clang-format says: clang-format -i repairs it.

Versions of clang-format break lines differently. Where it is not Debian 12's, nothing is checked
and the status is 77: skipped.
"""

import re
import shutil
import subprocess
import sys

from house import code_files, tell

VERSION = "14"


def other_version():
    """Why nothing can be checked here, or ""."""
    if not shutil.which("clang-format"):
        return ""  # a fault: scripts/setup.sh installs it
    said = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    if found and found[1] == VERSION:
        return ""
    return f"skipped: sources are formatted by clang-format {VERSION}, here is {said.strip()}"


def check(root):
    if not shutil.which("clang-format"):
        return ["no clang-format here; scripts/setup.sh installs it"]
    command = ["clang-format", "--dry-run", "--Werror", *code_files(root)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root)
    bad = re.findall(r"^(.+?):\d+:\d+: error", run.stderr, re.MULTILINE)
    faults = [f"{name}: clang-format would change it" for name in dict.fromkeys(bad)]
    return faults or (run.stderr.splitlines() if run.returncode else [])


if __name__ == "__main__":
    if other_version():
        print(other_version())
        sys.exit(77)
    tell(check)
