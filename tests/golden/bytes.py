#!/usr/bin/env python3
"""Whether the programs of a build count what tests/golden/bytes.json says.

    tests/golden/bytes.py BIN            BIN: the folder of the programs, build/cpu/bin
    tests/golden/bytes.py BIN --only 07  only runs whose text begins like that
    tests/golden/bytes.py BIN --write    what is counted becomes right; read the diff before you commit it

A run is a chapter and its flags. What is counted: bytes of memory by category, calls and bytes on
the wire by operation, and all that the report measures in whole numbers: traffic, operations
computed again, rows. A number stands for all ranks, a list has one for each. What a run predicts must
be what it counts, as tests/common/layouts.cpp asks of layouts; this holds both to what they were.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent
# Of every run, unless its flags say otherwise. A step of `ref` has the same counts on all machines.
DEFAULTS = {"--model": "nano", "--channels": "64", "--batch": "4", "--steps": "1", "--threads": "1",
            "--backend": "ref", "--loss-scale": "1024"}


def report_of(program, flags):
    """What --report says, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--data", "text.txt", "--quiet", "--report", "report.json", *flags.split()]
        tokens = int(words[words.index("--seq-len") + 1]) if "--seq-len" in words else 16
        # Little is held out: validation takes most of the time of one step.
        text = (GOLDEN / "text.txt").read_bytes() * 9
        (Path(folder) / "text.txt").write_bytes(text[:25 * tokens])
        for flag, value in DEFAULTS.items():
            fp32 = program.name < "ch05" or program.name in ("ch14_stability", "ch34_scaling")
            if flag not in words and not (flag == "--loss-scale" and fp32):
                words += [flag, value]
        done = subprocess.run([program, *words], capture_output=True, text=True, cwd=folder)
        report = Path(folder) / "report.json"
        if done.returncode != 0 or not report.exists():
            return f"exit status {done.returncode}; {done.stderr.strip()[-300:]}"
        return json.loads(report.read_text())


def together(ranks):
    """One number if all ranks have the same."""
    return ranks[0] if all(x == ranks[0] for x in ranks) else ranks


def measured(part, name=""):
    """(name, number) of all that `part` measures in whole numbers."""
    if isinstance(part, list):
        for i, value in enumerate(part):
            yield from measured(value, f"{name}/{i}")
    elif isinstance(part, dict):
        value = part.get("measured", part.get("bytes"))
        if isinstance(value, (int, list)):
            yield name.removeprefix("/"), value
        for key, inner in part.items():
            if key != "measured":
                yield from measured(inner, f"{name}/{key}")


def not_as_predicted(part, name=""):
    """Names of what `part` predicts and measures otherwise."""
    if isinstance(part, list):
        part = dict(enumerate(part))
    if not isinstance(part, dict):
        return []
    wrong = [name] if part.get("predicted", part.get("measured")) != part.get("measured") else []
    return wrong + [fault for key, inner in part.items() for fault in not_as_predicted(inner, f"{name}/{key}")]


def faults_of(run, report):
    """The same of a whole report. Rows that full experts drop are not computed, and nobody predicts them."""
    unknown = ("block", "recompute") if "--capacity" in run else ()
    extra = {name: part for name, part in report["extra"].items() if name not in unknown}
    return not_as_predicted({"memory": report["memory"], "extra": extra})


def counts_of(report):
    counts = {}
    for mem in report["memory"][0]:
        if mem != "rank":
            counts[mem] = together([rank[mem]["measured"] for rank in report["memory"]])
    for operation in report["comm"][0] if report.get("comm") else []:
        for what in ["calls", "wire_bytes"]:
            if operation != "rank":
                counts[f"{operation} {what}"] = together(
                    [rank[operation][what] for rank in report["comm"]])
    counts |= measured(report["extra"])
    return {name: count for name, count in counts.items() if count not in (0, None)}


def compare(got, want):
    """What differs, as text; nothing: none."""
    if isinstance(got, str):
        return got
    return "; ".join(f"{name} {got.get(name, 0)}, not {want.get(name, 0)}"
                     for name in sorted(got.keys() | want.keys()) if got.get(name) != want.get(name))


def text_of(golden):
    """A line for each count, so that a diff shows what has changed."""
    runs = []
    for run, counts in golden.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(counts[name])}" for name in sorted(counts)]
        runs.append(f" {json.dumps(run)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(runs) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path, help="folder of the programs")
    parser.add_argument("--only", default="", help="only runs whose text begins like that")
    parser.add_argument("--some", action="store_true", help="some of the programs may be missing")
    parser.add_argument("--write", action="store_true", help="what is counted becomes right")
    args = parser.parse_args()
    path = GOLDEN / "bytes.json"
    golden = json.loads(path.read_text())
    runs = [run for run in golden if run.startswith(args.only)]
    if not runs:
        parser.error(f"--only {args.only}: no run begins like that; the first is {next(iter(golden))}")
    same, bad, missing = 0, 0, set()
    for run in runs:
        chapter, _, flags = run.partition(" ")
        program = args.bin.resolve() / f"ch{chapter}"
        if not program.exists():
            missing.add(chapter)
            continue
        report = report_of(program, flags)
        wrong = faults_of(run, report) if isinstance(report, dict) else []
        got = report if isinstance(report, str) else f"not as predicted: {wrong}" if wrong else counts_of(report)
        if args.write and isinstance(got, dict):
            golden[run] = got
        different = compare(got, golden[run])
        same, bad = same + (not different), bad + bool(different)
        if different:
            print(f"FAILED  {run}: {different}", flush=True)
    for chapter in sorted(missing):
        print(f"not built: {chapter}")
    if args.write:
        path.write_text(text_of(golden))
    print(f"{same} runs with the golden counts, {bad} without")
    sys.exit(bad > 0 or same == 0 or (len(missing) > 0 and not args.some))


if __name__ == "__main__":
    main()
