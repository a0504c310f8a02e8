#!/usr/bin/env python3
"""What scripts/nightly.sh does; it says what the parts are."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chapter_tree
from measure import ROOT, commit, machine


def layouts(build):
    """Each three values of three axes of tests/layouts.txt, on threads and under mpirun, and all meshes of 16 ranks of chapter 33;
    writes the page about them. Hours: what passed on this commit is not run again, so it may be ended and started anew."""
    programs, began = [build / "tests" / name for name in ("layouts", "slow_33_mesh")], time.monotonic()
    for program in programs:
        if not program.is_file():
            fail(f"not built: {program}")
    log, this = build / "nightly_layouts.log", f"commit {commit()}\n"
    told = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    told = told if told.startswith(this) else this
    passed = re.findall(r"^\[       OK \] (\S+) ", told, re.MULTILINE)
    failed = 0
    with log.open("w") as out:
        out.write(told)
        out.flush()
        for program in programs:
            failed += call(program, f"--gtest_filter=-{':'.join(passed)}", env={**os.environ, "LADDER_LAYOUTS": "all"}, stdout=out)
    told = log.read_text(encoding="utf-8", errors="replace")
    good = set(re.findall(r"^\[       OK \] (?:\S+/)?(\S+/\S+) ", told, re.MULTILINE))
    equal = lambda test: "all" if test in good else "FAILED"
    lines = ["# Same bits on every layout, in full", "",
             f"`scripts/nightly.sh --part layouts`, commit {commit()}, on {machine()}. Each three values of three axes of "
             "[tests/layouts.txt](../../tests/layouts.txt) meet in a run of 20 steps, which stops half-way and goes on in another layout. "
             "Of each are equal to its root's: the loss, the norm and the hash of all weights after every step; the "
             "files that it saves; its validation. Bytes are counted as predicted.", "", "| chapter | layouts | equal |", "|---|---|---|"]
    rows = dict(re.findall(r"^layouts of (\S+): (\d+)$", told, re.MULTILINE))
    lines += [f"| {name} | {count} | {equal(f'LayoutRuns.KeepEveryPromise/{name}')} |" for name, count in sorted(rows.items())]
    lines += ["", "Every mesh of 16 ranks of chapter 33, and some of 32, for two steps, with the bits of one rank of chapter 06 "
              "([factorizations.cpp](../../tests/33_mesh/factorizations.cpp)):", "", "| test | equal |", "|---|---|"]
    lines += [f"| {test} | {equal(test)} |" for test in sorted(set(re.findall(r"^\[ RUN      \] Of/(\S+)", told, re.MULTILINE)))]
    result = ROOT / "docs/results/nightly_layouts.md"
    result.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"{sum(map(int, rows.values()))} layouts, {time.monotonic() - began:.0f} s: see {result}")
    return failed


# ---- the other parts: how many of their commands failed -------------------------------------------


def call(*words, **how):
    """Runs a command. Returns whether it failed; status 77 says that it was not tried."""
    status = subprocess.run([str(word) for word in words], cwd=how.pop("cwd", ROOT), **how).returncode
    if status not in (0, 77):
        print(f"FAILED  {' '.join(map(str, words))}: status {status}", flush=True)
    return status not in (0, 77)


def clients(build):
    pages = {"test_transformers": "clients", "test_llama": "clients_llama", "test_mixtral": "clients_mixtral"}
    return sum(call(sys.executable, "-B", test, "--build", build, "--install",
                    *(["--result", f"docs/results/{pages[test.stem]}.md"] if test.stem in pages else []))
               for test in sorted((ROOT / "tests/clients").glob("test_*.py")))


def readmes(build):
    failed = call("scripts/readme_commands.py", "--build", build)
    if shutil.which("doxygen"):
        failed += call("cmake", build) or call("cmake", "--build", build, "--target", "docs")
    return failed


def labs(build):
    """All mutants of all labs, and the submissions of tests/labs/cheats.py to the autograders of three labs."""
    if call("cmake", "--build", build, "--target", "labs", stdout=subprocess.DEVNULL):
        return 1
    failed = sum(call(sys.executable, "-B", "-m", "engine.selftest", build, lab.name, "--every-mutant", cwd=ROOT / "labs")
                 for lab in sorted(file.parent for file in (ROOT / "labs").glob("*_*/lab.toml")))
    with tempfile.TemporaryDirectory() as folder:
        for lab in ("08", "12x", "37"):
            packed = f"{folder}/{lab}.zip"
            failed += (call("labs/autograder.sh", lab, packed, stdout=subprocess.DEVNULL) or
                       call(sys.executable, "-B", "tests/labs/cheats.py", packed, lab))
    return failed


def built(preset, *flags, prefix=()):
    return not (call("cmake", "--preset", preset, *flags, stdout=subprocess.DEVNULL) or
                call(*prefix, "cmake", "--build", f"build/{preset}"))


def left_out(build):
    """ctest without a preset knows none of its filters. All meshes of chapter 33 are of the part `layouts`."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    of_cpu = next(preset["filter"]["exclude"]["name"] for preset in presets if preset["name"] == "cpu")
    ctest = ["ctest", "--parallel", os.cpu_count(), "--output-on-failure", "--no-tests=error", "--test-dir"]
    # ThreadSanitizer wants its memory where address randomisation may have put a library.
    fixed = ["setarch", platform.machine(), "-R"]
    return (call(*ctest, build, "--tests-regex", of_cpu, "--exclude-regex", "^Of/") +
            call(sys.executable, "-B", "tests/house/clang_syntax.py", "--build", build, "--all") +
            (not built("debug") or call(*ctest, "build/debug")) +
            (not built("tsan", prefix=fixed) or call(*fixed, *ctest, "build/tsan")) +
            (shutil.which("nvcc") is not None and not built("cuda", "-U", "CMAKE_CUDA_ARCHITECTURES")))


def types(build):
    """Types with two definitions. Inline functions with two definitions are not found: the linker takes either."""
    flags = "-O1 -flto=auto -Wodr -Werror=odr -Werror=lto-type-mismatch"
    targets = [f"ch{name}" for name in chapter_tree.chapters()]
    return (call("cmake", "-S", ".", "-B", "build/types", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 f"-DCMAKE_CXX_FLAGS_RELEASE={flags}", "-DLADDER_CUDA=OFF", "-DLADDER_BENCH=OFF", "-DBUILD_TESTING=OFF",
                 stdout=subprocess.DEVNULL) or
            call("cmake", "--build", "build/types", "--target", *targets))


PARTS = {"layouts": layouts, "clients": clients,
         "torture": lambda build: call("scripts/torture.sh", "--build", build), "fuzz": lambda build: call("scripts/fuzz.sh", 600),
         "readmes": readmes, "labs": labs, "left_out": left_out, "types": types,
         "machines": lambda build: call("scripts/machines.sh")}


def fail(why):
    print(f"nightly.sh: {why}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(prog="nightly.sh", description=__doc__.split("\n")[0])
    parser.error = lambda message: fail(f"{message}; legal: --build DIR, --part {'|'.join(PARTS)}")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu")
    args = parser.parse_args()
    build = args.build.resolve()
    if not (build / "bin").is_dir():
        fail(f"--build {args.build}: no folder bin with programs in it")
    failed = 0
    for name in [args.part] if args.part else PARTS:
        part = PARTS[name]
        failed += part(build)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
