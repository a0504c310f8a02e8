#!/usr/bin/env python3
"""Whether the programs of a build have the bits of tests/golden/bits.json.

    scripts/bits.py BIN            BIN: the folder of the programs, build/cpu/bin
    scripts/bits.py BIN --run nano --backend cpu
    scripts/bits.py BIN --write    takes what these programs compute for right, where all layouts agree

Each run of the file names flags, and programs with layouts that must end in the same bits: loss and
gradient norm of the last step, and a hash of all weights after it. Those of `ref` and of `cpu`
differ; processor, compiler, threads and ranks make no difference. Runs with "pairs" on cpu are those
of builds that widen BF16 before they multiply: AMX adds in an order of its own. The CMakeCache.txt
above BIN says which builds do.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
FIELDS = ["loss", "grad_norm", "param_hash"]


def last_line(command, flags, steps, backend):
    """What the trace of a run says of its last step, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        words = ["--data", GOLDEN / "text.txt", *flags.split(), "--steps", str(steps),
                 "--backend", backend, "--quiet", "--trace", trace]
        if "--threads" not in flags:
            words += ["--threads", "1"]
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        lines = trace.read_text().splitlines() if trace.exists() else []
    if done.returncode != 0 or len(lines) != steps:
        return f"exit status {done.returncode}, {len(lines)} steps; {done.stderr.strip()[-300:]}"
    line = json.loads(lines[-1])
    return {field: line[field] for field in FIELDS}


def widens_bf16(bin_folder):
    """Whether the cpu kernels of a build widen BF16 before they multiply."""
    cache = bin_folder.resolve().parent / "CMakeCache.txt"
    return not cache.exists() or "LADDER_GEMM_BF16:INTERNAL=no_pairs\n" in cache.read_text()


def compare(got, want):
    """The fields that differ, as text; nothing: none."""
    if isinstance(got, str):
        return got
    return "; ".join(f"{field} {got[field]}, not {want[field]}"
                     for field in FIELDS if got[field] != want[field])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path, help="folder of the programs")
    parser.add_argument("--run", help="only the run of this name")
    parser.add_argument("--backend", help="only this table of kernels: ref or cpu")
    parser.add_argument("--some", action="store_true", help="some of the programs may be missing")
    parser.add_argument("--launcher", default="", help="what starts the programs: an emulator")
    parser.add_argument("--write", action="store_true", help="what is computed becomes right")
    args = parser.parse_args()
    path = GOLDEN / "bits.json"
    golden = json.loads(path.read_text())
    names = [run["name"] for run in golden["runs"]]
    if args.run and args.run not in names:
        parser.error(f"--run {args.run}: legal are {', '.join(names)}")
    if args.backend not in [None, "ref", "cpu"]:
        parser.error(f"--backend {args.backend}: legal are ref and cpu")

    pairs = widens_bf16(args.bin)
    same, bad, missing = 0, 0, set()
    for run in golden["runs"]:
        if args.run and run["name"] != args.run:
            continue
        for backend in run["bits"]:
            left_out = run.get("pairs") and not pairs and backend == "cpu"
            if left_out or (args.backend and backend != args.backend):
                continue
            first = None
            for layout in run["layouts"]:
                chapter, _, more = layout.partition(" ")
                program = args.bin.resolve() / f"ch{chapter}"
                if not program.exists():
                    missing.add(chapter)
                    continue
                flags = f"--model {run['model']} {run['flags']} {more}"
                got = last_line([*args.launcher.split(), program], flags, run["steps"], backend)
                if args.write and first is None and isinstance(got, dict):
                    first = run["bits"][backend] = got
                different = compare(got, run["bits"][backend])
                same, bad = same + (not different), bad + bool(different)
                if different:
                    print(f"FAILED  {run['name']}, {backend}, {layout}: {different}", flush=True)
    for chapter in sorted(missing):
        print(f"not built: {chapter}")
    if args.write and bad == 0:
        path.write_text(json.dumps(golden, indent=1) + "\n")
    print(f"{same} runs with the golden bits, {bad} without")
    sys.exit(bad > 0 or same == 0 or (len(missing) > 0 and not args.some))


if __name__ == "__main__":
    main()
