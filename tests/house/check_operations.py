#!/usr/bin/env python3
"""kernels.h says of each operation what operations.inc declares: the same operands, and the parameters' names."""

import re

from house import tell

DECLARED = re.compile(r'^LADDER_OPERATION\((\w+),\s*((?:"[^"]*"\s*)+)\)', re.MULTILINE)
POINTER = re.compile(r"((?: *///[^\n]*\n)*) *void \(\*(\w+)\)\(const Ctx&(?:, )?([^;]*)\);")


def check(root):
    declared = {name: "".join(re.findall('"([^"]*)"', text)) for name, text in
                DECLARED.findall((root / "kernels/operations.inc").read_text())}
    faults, met = [], []
    for comment, name, parameters in POINTER.findall((root / "kernels/kernels.h").read_text()):
        met.append(name)
        operands = declared.get(name, "")
        said = " ".join(comment.replace("///", " ").split())
        if not said.endswith(" " + operands):
            faults.append(f"kernels/kernels.h: the lines above {name} must end with {operands}")
        tensors = re.findall(r"Tensor (\w+)", parameters)
        named = re.findall(r"(\w+)\??\([^ ]*", operands)
        if tensors != named:
            faults.append(f"kernels/operations.inc: {name} takes {', '.join(tensors)}, not {', '.join(named)}")
    if met != list(declared):
        faults.append("kernels/operations.inc: the operations are not those of kernels/kernels.h in their order")
    return faults


if __name__ == "__main__":
    tell(check)
