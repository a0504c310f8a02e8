"""What must not stand in PTX, the assembly of kernels: only nvcc makes it, so no stand-in shows it.

    check_ptx.py LIBRARY              the kernels: prints what is wrong; exit status 1 if anything is
    check_ptx.py --planted LIBRARY    a kernel whose name begins with `bad_` has one fault, others none

nvcc puts PTX beside the code of a GPU if an architecture is named without `-real`; with `--no-compress`
it is text.

Two faults are known.
- `trap`: device code that refers to memory of the host, such as a static constexpr member that is
  passed by reference, compiles without a word to an instruction that ends the program.
- A choice of -0 or 1 by a comparison of floats: ptxas 13.0 makes of it one instruction that gives
  +0 or 1 (FSET.BF), and a sign is lost.
"""

import re
import sys
from pathlib import Path

PTX = re.compile(rb"\.version \d+\.\d+\n[^\0]+")
FUNCTION = re.compile(r"^\s*(?:\.\w+ )*\.(?:entry|func)\b.*?(\w+)\s*\($")
COMPARED = re.compile(r"setp\.\w+(?:\.\w+)*\.f(?:32|64)\s+(%p\d+)")
CHOSEN = re.compile(r"selp\.f32\s+%f\d+, (0f\w+), (0f\w+), (%p\d+)")
MINUS_ZERO_OR_ONE = {"0f80000000", "0f3F800000"}


def faults(lines):
    """Each fault of each function, as (function, fault); and (function, "") for the function itself."""
    name, compared = "", set()
    for line in lines:
        if match := FUNCTION.search(line):
            name, compared = match[1], set()
            yield name, ""
        elif match := COMPARED.search(line):
            compared.add(match[1])
        elif re.match(r"\s*trap;", line):
            yield name, "traps: a reference to memory of the host?"
        elif match := CHOSEN.search(line):
            if {match[1], match[2]} == MINUS_ZERO_OR_ONE and match[3] in compared:
                yield name, "chooses -0 or 1 by a comparison of floats: ptxas makes +0 or 1 of it"


def main():
    planted = sys.argv[1:2] == ["--planted"]
    found = {}
    for text in PTX.findall(Path(sys.argv[1 + planted]).read_bytes()):
        for name, fault in faults(text.decode().splitlines()):
            found.setdefault(name, set()).add(fault)
    wrong = not found
    for name, its in sorted(found.items()):
        its.discard("")
        if planted and bool(its) != name.startswith("bad_"):
            wrong = True
            print(f"{name}: a planted fault is not found, or one is that is not there")
        for fault in () if planted else sorted(its):
            wrong = True
            print(f"{name} {fault}")
    print(f"{len(found)} functions")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
