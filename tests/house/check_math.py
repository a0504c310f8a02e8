#!/usr/bin/env python3
"""Where bits must be the same, nobody calls the C library's exp, log, sin, cos, pow or their like.

They differ between versions of the library and between processors; kernels/math.h has functions
that do not. What is exact everywhere (sqrt, fma, floor, ldexp, frexp and such) may be called. CUDA
keeps its own promise. An unqualified exp is that of kernels/cpu/simd.h, on vectors.
"""

import re

from house import code_files, tell

NAMES = (
    "exp exp2 expm1 log log2 log10 log1p pow cbrt hypot sin cos tan asin acos atan atan2 "
    "sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma"
).split()
NAME = "|".join(NAMES)
# std::exp and ::exp, or exp, expf and expl with no name before them but a statement's.
CALL = re.compile(rf"(?:(\w+)\s+)?(?<![\w.>:])((?:std)?(?:::)?(?:{NAME})[fl]?)\s*\(")
STATEMENTS = {None, "return", "else", "co_return"}
VECTOR_FUNCTIONS = {"exp", "exp2"}
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
FLOORS = {"kernels", "common", "chapters"}


def blank(match):
    """As many lines, and nothing in them."""
    return "\n" * match[0].count("\n")


def check_file(root, path):
    where = path.relative_to(root)
    ours = str(where) in {"kernels/math.h", "kernels/math.cpp"}
    for_vectors = where.parts[:2] == ("kernels", "cpu")
    faults = []
    code = COMMENT.sub(blank, path.read_text(encoding="utf-8"))
    for match in CALL.finditer(code):
        before, name = match.groups()
        declares = ":" not in name and before not in STATEMENTS
        if declares or ours and ":" not in name or for_vectors and name in VECTOR_FUNCTIONS:
            continue
        line = code.count("\n", 0, match.start(2)) + 1
        faults.append(f"{where}:{line}: {name} has other bits elsewhere: kernels/math.h")
    return faults


def check(root):
    faults = []
    for path in code_files(root):
        where = path.relative_to(root)
        if where.parts[0] in FLOORS and where.parts[1] != "cuda":
            faults += check_file(root, path)
    return faults


if __name__ == "__main__":
    tell(check)
