#!/usr/bin/env python3
"""Compares two runs: the first step and the first number that differ.

    scripts/curves.py A B                   A and B: files of --trace, or directories of --events

Status 0: equal; 1: not; 2: bad input.
"""

import json
import re
import struct
import sys
from pathlib import Path

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a message of protocol buffers; numbers of fixed width stay bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            n, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + n], at + n
        yield key >> 3, value


def events(folder):
    """{step: {tag: float as text}} of a directory of --events. A session start drops later steps."""
    steps = {}
    for path in sorted((Path(folder) / "curves").glob("*tfevents*")):
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            n = int.from_bytes(data[at:at + 8], "little")
            event = dict(fields(data[at + 12:at + 12 + n])) if at + n + 16 <= len(data) else {}
            at, step = at + n + 16, event.get(2, 0)
            if 7 in event:
                steps = {s: tags for s, tags in steps.items() if s < step}
            for _, value in fields(event.get(5, b"")):
                tag = dict(fields(value))
                steps.setdefault(step, {})[tag[1].decode()] = struct.unpack("<f", tag[2])[0].hex()
    return steps


def trace(path):
    """The same of a --trace. Of a step that was taken twice the last time counts."""
    steps = {}
    for line in Path(path).read_text().splitlines():
        line = json.loads(line)
        float.fromhex(line["loss"])
        steps[line["step"]] = {tag: line[tag] for tag in ("loss", "grad_norm", "lr", "param_hash")}
    return steps


def read(path):
    try:
        steps = events(path) if Path(path).is_dir() else trace(path)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as e:
        raise SystemExit(f"curves.py: {path}: neither a --trace nor a directory of --events: {e}")
    if not steps:
        raise SystemExit(f"curves.py: {path}: no steps")
    return steps


def turn(tags):
    """Names in the order in which a step computes them: the stream, the loss, gradients from the head
    down, and what follows from them."""
    tensors = [tag.partition("/")[2] for tag in tags if tag.startswith("gradient/")]
    place = {name: i for i, name in enumerate(tensors)}

    def key(tag):
        kind, _, name = tag.partition("/")
        if kind == "rms":
            return 0, int(name)
        if kind == "loss":
            return 1, 0
        if kind in ("gradient", "largest", "zeros"):
            return 2, -place.get(name, 0)
        return 3, 0
    return sorted(tags, key=key)


def first_difference(a, b):
    """(step, tag, value, value, how many differ in that step), or None."""
    for step in sorted(a.keys() & b.keys()):
        different = [tag for tag in turn(a[step]) if tag in b[step] and a[step][tag] != b[step][tag]]
        if different:
            tag = different[0]
            return step, tag, a[step][tag], b[step][tag], len(different)
    return None


def shown(text):
    return f"{float.fromhex(text):.9g}" if re.match(r"-?0x|inf|nan|-inf", text) else text


def compare(a, b):
    one, other = read(a), read(b)
    common = one.keys() & other.keys()
    difference = first_difference(one, other)
    if difference is None:
        if not common:
            raise SystemExit(f"curves.py: {a} and {b} have no step in common")
        print(f"equal: all numbers of the {len(common)} steps that both have")
        return 0
    step, tag, x, y, count = difference
    print(f"step {step} is the first that differs: {tag}, {shown(x)} and {shown(y)}"
          f"{f', and {count - 1} more' if count > 1 else ''}")
    return 1


def main(words):
    if len(words) != 2 or words[0].startswith("-"):
        raise SystemExit("curves.py: legal are two runs, each a file of --trace or a directory of --events")
    return compare(*words)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
            sys.exit(2)
        raise
