"""What the checks of the house share: which files there are, and how faults are told.

Files are found by walking the tree, so a checkout and an unpacked archive are checked alike.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["kernels", "common", "chapters", "labs", "tests", "bench", "docs", "scripts", "cmake", ".ci"]
CODE = {".h", ".inc", ".cpp", ".cu", ".cuh"}


def all_files(root):
    """Every file of the project: those of its folders, and those beside them."""
    found = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def code_files(root):
    return [path for path in all_files(root) if path.suffix in CODE]


def floor(root, path):
    """Name of the top folder that a file lies in: "kernels", "common", ..."""
    return path.relative_to(root).parts[0]


def tell(check):
    """Prints the faults that a check finds in the project; the exit status for them."""
    faults = check(ROOT)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)
