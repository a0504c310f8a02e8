#!/usr/bin/env python3
"""Where bits must be the same, nobody calls the C library's exp, log, sin, cos, pow or their like.

They differ between versions of the library and between processors; kernels/math.h has functions
that do not. What is exact everywhere (sqrt, fma, floor, ldexp, frexp and such) may be called. CUDA
keeps its own promise, and a toy compares only with itself. An unqualified exp is that of kernels/cpu/simd.h, on vectors.

Device code does not count bits with <bit>: nvcc 13.0 makes constants of std::bit_width of 64 bits
and of std::countr_zero. Headers that kernels include count as device code.
"""

import re

from house import code_files, tell

NAMES = ("exp|exp2|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sin|cos|tan|asin|acos|atan|atan2|"
         "sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|tgamma|lgamma")
# std::exp and ::exp, or exp, expf and expl with no name before them but a statement's.
CALL = re.compile(rf"(?:(\w+)\s+)?(?<![\w.>:])((?:std)?(?:::)?(?:{NAMES})[fl]?)\s*\(")
STATEMENTS = {None, "return", "else", "co_return"}
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# Who may call the names that follow without a qualifier.
OWN = {"kernels/math.h": NAMES, "kernels/math.cpp": NAMES, "kernels/cpu/": "exp|exp2"}


# In device code; of 32 bits std::bit_width is right, and quantize.h has no more.
BITS = re.compile(r"std::(?:bit_width|bit_floor|countl_zero|countl_one|countr_zero|countr_one)\b")
DEVICE = re.compile(r"kernels/(?:cuda/(?!on_cpu/).*\.(?:cu|h)|(?!quantize)\w+\.h)$")


def check(root):
    faults = []
    for path in code_files(root):
        where = str(path.relative_to(root))
        code = NOT_CODE.sub(lambda m: "\n" * m[0].count("\n"), path.read_text(encoding="utf-8"))
        if DEVICE.match(where):
            faults += [f"{where}:{code.count(chr(10), 0, match.start()) + 1}: nvcc makes a constant of {match[0]}"
                       for match in BITS.finditer(code)]
        if not where.startswith(("kernels/", "common/", "chapters/")) or where.startswith("kernels/cuda/"):
            continue
        if path.name == "toy.cpp":  # it compares within one program, and knows the standard library alone
            continue
        own = "|".join(names for folder, names in OWN.items() if where.startswith(folder))
        for match in CALL.finditer(code):
            before, name = match.groups()
            if ":" not in name and (before not in STATEMENTS or re.fullmatch(f"({own})[fl]?", name)):
                continue
            line = code.count("\n", 0, match.start(2)) + 1
            faults.append(f"{where}:{line}: {name} has other bits elsewhere: kernels/math.h")
    return faults


if __name__ == "__main__":
    tell(check)
