#!/usr/bin/env python3
"""Builds chapters/23_planner/planner.html: the planner as a page that needs no server.

    scripts/planner_page.py [--build DIR]    wants ziglang 0.17.1 from PyPI, and ch23_planner in DIR
                                             (build/cpu)

The page has the C++ of chapter 23 as WebAssembly, and no formula of its own. It is committed, so
that a reader needs no compiler for it. It names the commit that it was built from, and the digest of
some answers of the program: tests ask the program again, and say when the page is stale.
"""

import argparse
import base64
import gzip
import hashlib
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from marked import ROOT
from measure import commit

CHAPTER = ROOT / "chapters/23_planner"
PARTS = CHAPTER / "page"
PAGE = CHAPTER / "planner.html"

SOURCES = [f"chapters/23_planner/page/{name}.cpp" for name in ("page", "alone")]
SOURCES += [f"common/{name}.cpp" for name in (
    "printable", "comm/reduction", "model/activations", "model/config", "model/layout", "model/param_tables", "model/rope",
    "run/model_options")]
EXPORTS = ["planner_answer", "planner_choices", "malloc", "free"]

# Exceptions in the form that every browser has had since 2022. Zig does not compile the part of the
# library that throws for WebAssembly: we do.
TARGET = ["-target", "wasm32-wasi", "-mcpu=generic+bulk_memory+exception_handling+nontrapping_fptoint+sign_ext",
          "-fwasm-exceptions", "-mllvm", "-wasm-enable-eh", "-mllvm", "-wasm-use-legacy-eh=true"]
FLAGS = ["-Oz", "-DNDEBUG", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections", "-w",
         # Headers have threads and locks as members. They compile so; none starts, or it would not link.
         "-U_LIBCPP_HAS_THREADS", "-D_LIBCPP_HAS_THREADS=1", "-D_LIBCPP_HAS_THREAD_API_PTHREAD=1"]
OURS = ["-std=c++20", "-DFMT_HEADER_ONLY", "-include", str(PARTS / "alone.h"), "-I", str(ROOT)]
HEADERS = ["fmt", "nlohmann"]  # of /usr/include, which has the C library's, too


# ---- questions ----------------------------------------------------------------------------------

def devices():
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((CHAPTER / "devices").glob("*.toml"))}


def questions(count):
    """Questions with all of the layout given, on devices of endless memory: the words of a command
    line, and the text of the device's file. Some layouts are not legal."""
    rng, files = random.Random(23), devices()
    pick = lambda *values: values[rng.randrange(len(values))]
    models = {"gpt3-6.7b": 32, "gpt3-175b": 96, "llama2-7b": 32, "llama3-8b": 32, "llama3-70b": 80,
              "llama3-405b": 126, "mixtral-8x7b": 32, "like-deepseek-v3": 61, "gpt2-1558m": 48}
    asked = []
    for _ in range(count):
        model, device = pick(*models), pick(*files)
        experts = model in ("mixtral-8x7b", "like-deepseek-v3")
        pp = pick(1, 1, *(n for n in (2, 3, 4, 6, 8, 16, 61) if models[model] % n == 0))
        tp, cp, dp = 1 if experts else pick(1, 2, 4, 8), pick(1, 1, 2, 4, 16), pick(1, 2, 4, 8, 32, 64)
        micro, zero = pick(1, 1, 2, 4), pick(0, 1) if pp > 1 else pick(0, 1, 2, 3)
        replicas = pick(1, 2) if zero == 3 and cp == 1 and dp > 2 else 1
        flags = {"model": model, "device": device, "gpus": tp * pp * cp * dp, "seq-len": pick(4096, 8192, 131072),
                 "batch": dp * micro * pick(1, 2, 8, 16, 24), "tp": tp, "pp": pp, "cp": cp, "dp": dp,
                 "ep": pick(1, 2, 4, 8) if experts else 1, "zero": zero, "replicas": replicas, "micro-batch": micro,
                 "recompute": pick("none", "selective", "full", "sqrt"), "precision": pick("bf16", "bf16", "fp32", "fp16", "fp8"),
                 "gradients": pick("fp32", "16-bit", "both"), "schedule": pick("1f1b", "gpipe", "interleaved", "zb-h1"),
                 "chunks": pick(1, 2), "price": pick(0, 2.5)}
        if flags["schedule"] != "interleaved":
            del flags["chunks"]
        words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
        words += pick([], [], ["--no-sequence-parallel"])
        memory = re.compile(r"(\[memory\].*?\ngigabytes = )[\d.]+", re.DOTALL)
        asked.append((words, memory.sub(r"\g<1>1000000", files[device], count=1)))
    return asked


def ask_program(program, words, file):
    """The program's answer: its report, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        device, report = Path(folder, "own.toml"), Path(folder, "plan.json")
        device.write_text(file, encoding="utf-8")
        at = words.index("--device") + 1
        run = subprocess.run([program, *words[:at], device, *words[at + 1:], "--report", report],
                             capture_output=True, text=True)
        if run.returncode == 0:
            return json.loads(report.read_text(encoding="utf-8"))
        return {"error": run.stderr.removeprefix("error: ").strip().replace(str(device), words[at])}


def digest(program):
    """Of what makes the page: answers of the program, and the page's own sources."""
    found = hashlib.sha256()
    for words, file in questions(40):
        found.update(json.dumps(ask_program(program, words, file), sort_keys=True).encode())
    for part in sorted(PARTS.iterdir()):
        found.update(part.read_bytes())
    found.update(json.dumps(devices()).encode())
    return found.hexdigest()


# ---- WebAssembly --------------------------------------------------------------------------------

def zig(*words):
    run = subprocess.run([sys.executable, "-m", "ziglang", *map(str, words)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"planner_page.py: zig {words[0]} failed\n{run.stderr}")


def library_sources():
    """Those of the C++ library that throw and catch, with their flags."""
    lib = Path(importlib.util.find_spec("ziglang").origin).parent / "lib"
    abi, unwind = lib / "libcxxabi", lib / "libunwind"
    flags = ["-std=c++23", "-D_LIBCXXABI_BUILDING_LIBRARY", "-D_LIBCPP_BUILDING_LIBRARY", "-D_LIBCXXABI_HAS_NO_THREADS",
             *(word for path in (abi / "include", abi / "src", lib / "libcxx/src", unwind / "include") for word in ("-I", path))]
    for name in ("cxa_exception", "cxa_personality"):
        yield "c++", abi / f"src/{name}.cpp", flags
    yield "cc", unwind / "src/Unwind-wasm.c", ["-D_LIBUNWIND_HIDE_SYMBOLS", "-I", unwind / "include"]


def webassembly():
    folder = ROOT / "build/planner_page"  # always the same, so that Zig's cache knows it
    folder.mkdir(parents=True, exist_ok=True)
    for name in HEADERS:
        if not (folder / name).exists():
            os.symlink(Path("/usr/include", name), folder / name)
    ours = [("c++", ROOT / source, [*OURS, "-I", folder]) for source in SOURCES]
    # The linker takes the first that it finds: ours come before the library's, which only abort.
    jobs = [(*job, folder / f"{i}.o") for i, job in enumerate([*library_sources(), *ours])]
    compile_one = lambda job: zig(job[0], *TARGET, *FLAGS, *job[2], "-c", job[1], "-o", job[3])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))
    wasm = folder / "planner.wasm"
    zig("c++", *TARGET, *FLAGS, "-mexec-model=reactor", "-s", "-Wl,--gc-sections",
        *(f"-Wl,--export={name}" for name in EXPORTS), *(job[3] for job in jobs), "-o", wasm)
    return wasm.read_bytes()


def page(wasm, program):
    packed = base64.b64encode(gzip.compress(wasm, 9, mtime=0)).decode()
    texts = {"commit": commit(), "digest": digest(program), "wasm": packed, "devices": json.dumps(devices()),
             **{name: (PARTS / f"page.{name}").read_text(encoding="utf-8") for name in ("css", "js")}}
    return re.sub(r"\{\{(\w+)\}\}", lambda m: texts[m[1]], (PARTS / "page.html").read_text(encoding="utf-8"))


def fail(why):
    print(f"planner_page.py: {why}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/cpu", type=Path)
    program = parser.parse_args().build / "bin/ch23_planner"
    if importlib.util.find_spec("ziglang") is None:
        fail("no ziglang; legal is: pip install ziglang==0.17.1")
    if not program.is_file():
        fail(f"no {program}; legal is a --build that has it")
    wasm = webassembly()
    PAGE.write_text(page(wasm, program), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {PAGE.stat().st_size} bytes, of WebAssembly {len(wasm)}")


if __name__ == "__main__":
    main()
