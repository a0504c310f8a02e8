#!/usr/bin/env python3
"""Each `ctest -R` that a page names finds a test: every alternative of its expression.

A build that lacks a program does not know that program's tests; then nothing is checked (status 77).
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from house import ROOT, all_files

COMMAND = re.compile(r"ctest\b[^`\n]*? -R (\"[^\"]+\"|'[^']+'|[^\s`]+)")


def check(pages, tests):
    """Faults of pages (text by name), where tests are the names of all tests."""
    return [f"{page}: no test has a name with `{one}`" for page, text in pages.items()
            for expression in COMMAND.findall(text) for one in expression.strip("\"'`").split("|")
            if not any(re.search(one, test) for test in tests)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    listed = subprocess.run(["ctest", "--test-dir", parser.parse_args().build, "-N"],
                            capture_output=True, text=True, check=True).stdout
    tests = re.findall(r"Test +#\d+: (\S+)", listed)
    if any(test.endswith("NOT_BUILT") for test in tests):
        print("skipped: this build lacks programs, and does not know their tests")
        sys.exit(77)
    pages = {path.relative_to(ROOT): path.read_text(encoding="utf-8")
             for path in all_files(ROOT) if path.suffix == ".md"}
    faults = check(pages, tests)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
