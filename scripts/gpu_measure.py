#!/usr/bin/env python3
"""Tests and measures on the GPU of this machine what scripts/gpu_check.sh has built or unpacked.

First what is right, all side by side on the one GPU, since nobody looks at the clock; then what is
fast, alone on it; then NVIDIA's tools, where they are installed. As it goes FOLDER/results.md holds
what is known, and FOLDER/details.txt what failed in full. Status 0 if nothing failed, 1 if something
did, 2 if there is nothing to test on.
"""

import argparse
import contextlib
import csv
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import gpu_runs
from gpu_runs import Failed, Machine, NotRun, call

# Kernels whose counters are read, as __global__ has them, and the benchmarks that start them.
COUNTED, COUNTED_IN = ["forward_kernel", "queries_kernel", "keys_kernel"], "attention"
COUNTERS = {"gpu__time_duration.sum": "time",
            "launch__registers_per_thread": "registers",
            "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy, %",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor cores, %",
            "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots, %",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "wavefronts of shared memory",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory, %"}
# All that these sections count goes to details.txt.
SECTIONS = ["SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats"]
# racecheck fails in the kernels of cuBLASLt, which these tests start.
WITH_PRODUCTS = "Matmul.*:Experts.Products:CudaRanks.*"


class Absent(Exception):
    """This machine lacks what a part needs."""


class Results:
    """The two files. Parts write at the same time."""

    def __init__(self, folder, about):
        self.folder, self.about, self.parts = folder, about, []
        self.lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "details.txt").write_text("")
        self.save()

    def save(self):
        lines = [*self.about, "", "| part | verdict | seconds |", "|---|---|--:|"]
        lines += [f"| {part.name} | {part.verdict} | {part.seconds():.0f} |" for part in self.parts]
        for part in self.parts:
            if part.lines:
                lines += ["", f"## {part.name}", "", *part.lines]
        (self.folder / "results.md").write_text("\n".join(lines) + "\n")

    def details(self, title, text):
        with self.lock, open(self.folder / "details.txt", "a", encoding="utf-8") as file:
            file.write(f"== {title}\n{text.rstrip()}\n")


class Part:
    """What one of PARTS found, line by line."""

    def __init__(self, name, results, limit):
        self.name, self.results, self.lines = name, results, []
        self.begin, self.end = time.monotonic(), None
        self.deadline = self.begin + limit
        self.verdict, self.failed, self.not_run = "cut off", 0, 0
        results.parts.append(self)

    def seconds(self):
        return (self.end or time.monotonic()) - self.begin

    def left(self):
        return self.deadline - time.monotonic()

    def line(self, text, good=True):
        """good: None if there was no time for it."""
        with self.results.lock:
            self.lines.append(text)
            self.failed += good is False
            self.not_run += good is None
            self.results.save()
            print(f"{self.name:<10} {text}", flush=True)

    def row(self, *cells, good=True):
        """A row of a table; the first row is the head."""
        first = not self.lines
        self.line(f"| {' | '.join(str(cell) for cell in cells)} |", good)
        if first:
            self.lines.append("|" + "---|" * len(cells))

    def details(self, title, text):
        self.results.details(f"{self.name}: {title}", text)

    def run(self, function, machine):
        try:
            if self.left() < 5:
                raise NotRun("not run: out of time")
            function(self, machine)
            self.verdict = f"{self.failed} FAILED" if self.failed else "passed"
            self.verdict += f", {self.not_run} not run: out of time" if self.not_run else ""
        except (Absent, NotRun) as error:
            self.verdict = str(error)
        except Exception as error:  # the other parts go on  # pylint: disable=broad-except
            self.failed += 1
            self.verdict = f"FAILED: {error}"
            self.details("", f"{error!r}\n{getattr(error, 'output', '')}")
        self.end = time.monotonic()
        with self.results.lock:
            self.results.save()
            print(f"== {self.name}: {self.verdict}, {self.seconds():.0f} s", flush=True)


# ---- the parts ----

def tests_of(program, environment):
    """The full names of its tests."""
    names, suite = [], ""
    for line in call([program, "--gtest_list_tests"], 60, environment).splitlines():
        name = line.split("#")[0].strip()
        if line.startswith(" "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def kernels(part, machine):
    """Runs each test in a process of its own: after a fault of the device all later tests of a process fail."""
    def test(program, name):
        output = call([program, f"--gtest_filter={name}"], min(60, part.left()), machine.environment)
        return True, "skipped" if "[  SKIPPED ]" in output else "passed"

    checks = [(name, partial(test, program, name))
              for program in sorted((machine.bin.parent / "tests").glob("*_cuda"))
              for name in tests_of(program, machine.environment)]
    gpu_runs.judge(part, checks, machine.workers)
    passed = sum(line.endswith("| passed |") for line in part.lines)
    part.lines = [line for line in part.lines if not line.endswith("| passed |")]
    part.line(f"\n{passed} of {len(checks)} passed, each in a process of its own.")


@contextlib.contextmanager
def clocks(part):
    """Writes down the clock and the power that the GPU had meanwhile."""
    if shutil.which("nvidia-smi") is None:
        yield
        return
    with tempfile.TemporaryFile("w+") as file:
        sampler = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--id=0",
                                    "--format=csv,noheader,nounits", "--loop-ms=250"], stdout=file)
        try:
            yield
        finally:
            sampler.kill()
            sampler.wait()
            file.seek(0)
            found = re.findall(r"^(\d+), ([\d.]+)$", file.read(), re.MULTILINE)
            for i, what in enumerate(["Clock of the GPU, MHz", "Power, W"] if found else []):
                values = [float(numbers[i]) for numbers in found]
                part.line(f"\n{what}: median {statistics.median(values):.0f}, "
                          f"highest {max(values):.0f}.")


def steps(part, machine, programs, environment, tell, flags=()):
    call([sys.executable, "-u", machine.root / "bench/peers/gpu_step.py", "--programs", programs,
          "--bin", machine.bin, "--backend", machine.backend, "--limit", part.left() - 3, *flags],
         part.left(), environment, tell)


def speed(part, machine):
    with clocks(part):
        steps(part, machine, "ladder", machine.environment, part.line)


def operations(part, machine):
    # Lines of the screen are not Markdown.
    def tell(line):
        part.line(f"    {line}")

    with clocks(part):
        for program in ("bench_cuda", "bench_attention_ladder"):
            call([machine.bin / program], part.left(), machine.environment, tell)


def decode(part, machine):
    """Chapter 31 on GPT-2 124M with weights of one step, prompts of 240 tokens and 64 more."""
    prompt = '{"prompt": "' + " ".join(str(i * i % 50257) for i in range(240)) + '"}\n'
    with tempfile.TemporaryDirectory() as folder, clocks(part):
        here = Path(folder)
        call([machine.bin / "ch05_mixed_precision", "--data", machine.text, "--model=gpt2-124m", "--steps=1",
              "--batch=1", "--precision=bf16", f"--backend={machine.backend}", "--save", here / "model"],
             part.left(), machine.environment)
        part.row("answers at a time", "tokens/s", "ms for a token of each")
        for batch in (1, 8, 64):
            (here / "prompts").write_text(prompt * batch)
            call([machine.bin / "ch31_generate", "--load", here / "model", "--tokens=ids", "--prompts",
                  here / "prompts", "--out", here / f"out{batch}", "--precision=bf16", "--temperature=0",
                  "--max-tokens=64", f"--batch={batch}", f"--backend={machine.backend}", "--report",
                  here / "report"], part.left(), machine.environment)
            rate = json.loads((here / "report").read_text())["decode_tokens_per_second"]
            part.row(batch, f"{rate:,.0f}", f"{1e3 * batch / rate:.2f}")


def peers(part, machine):
    try:
        call([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], part.left())
    except Failed as error:
        raise Absent(f"not run: no PyTorch that sees a GPU: {error}") from None
    with clocks(part):
        call([sys.executable, "-u", machine.root / "bench/peers/gpu_attention.py"], part.left(), None, part.line)
        part.line("")
        steps(part, machine, "torch", None, part.line)


def compile_peers(part, machine):
    """PyTorch keeps what it has compiled, so that the peers' own part is short. Nobody looks at
    what it measures."""
    with contextlib.suppress(Failed):
        steps(part, machine, "torch", None, lambda line: None, ["--steps=1", "--warmup=1"])


def tool(name):
    """The path of one of NVIDIA's tools. @throws Absent"""
    for folder in ("", "/usr/local/cuda/bin/", *map(str, Path("/opt/nvidia").glob("nsight-compute/*/"))):
        if found := shutil.which(f"{folder}{'/' if folder and folder[-1] != '/' else ''}{name}"):
            return found
    raise Absent(f"not run: no {name} here")


def sanitizers(part, machine):
    program = tool("compute-sanitizer")
    shares = machine.workers

    def sanitize(check, tests, **environment):
        # It looks at our kernels, not at cuBLASLt's.
        try:
            call([program, "--tool", check, "--kernel-name", "kns=ladder", "--error-exitcode", 9,
                  machine.bin.parent / "tests/kernels_cuda", "--gtest_brief=1",
                  f"--gtest_filter={tests}"], part.left(), {**machine.environment, **environment})
        except Failed as error:  # a test may fail; that is told elsewhere
            if not re.search("SUMMARY: 0 (errors|hazards)", error.output):
                raise
        return True, "no error"

    try:  # a machine that lends its GPU may not let the tool at it
        sanitize("memcheck", "Elementwise.AddAndScale")
    except Failed as error:
        raise Absent(f"not run: compute-sanitizer does not work: {error}") from None
    gpu_runs.judge(part, [(f"{check}, share {index + 1} of {shares}",
                           partial(sanitize, check, tests, GTEST_TOTAL_SHARDS=str(shares),
                                   GTEST_SHARD_INDEX=str(index)))
                          for check, tests in (("memcheck", "*"),
                                               ("racecheck", f"*-{WITH_PRODUCTS}"))
                          for index in range(shares)], shares)


def counters(part, machine):
    """Counters of the second launch of each kernel. The clocks of the GPU are not locked for it."""
    program = tool("ncu")
    part.row("kernel", *COUNTERS.values())
    for kernel in COUNTED:
        output = call([program, "--csv", "--page", "raw", "--clock-control", "none", "--kernel-name",
                       f"regex:^{kernel}$", "--launch-skip", 1, "--launch-count", 1,
                       *(word for name in SECTIONS for word in ("--section", name)),
                       "--metrics", ",".join(COUNTERS), machine.bin / "bench_cuda",
                       f"--benchmark_filter={COUNTED_IN}"],
                      part.left(), machine.environment)
        part.details(kernel, output)
        table = [line for line in csv.reader(output.splitlines()) if len(line) > 5]
        if len(table) < 3:  # names, units, numbers
            part.row(kernel, "FAILED: ncu counted nothing", good=False)
            continue
        found = {name: f"{value} {unit if name.startswith('gpu__time') else ''}".strip()
                 for name, unit, value in zip(*table[:3])}
        part.row(kernel, *(found.get(name, "-") for name in COUNTERS))


# Those of a group run side by side; seconds that each may take.
GROUPS = [[(kernels, 150), (gpu_runs.chapters, 190), (gpu_runs.ranks, 190), (gpu_runs.nccl, 190)],
          [(speed, 130)], [(decode, 40)], [(operations, 45)], [(peers, 170)], [(sanitizers, 90)], [(counters, 60)]]
PARTS = [part.__name__ for group in GROUPS for part, _ in group]


# ---- what runs them ----

def measure(args, machine, results, deadline):
    for group in GROUPS:
        parts = [(Part(function.__name__, results, min(limit, deadline - time.monotonic())), function)
                 for function, limit in group if function.__name__ in args.only]
        with ThreadPoolExecutor() as pool:
            for part, function in parts:
                pool.submit(part.run, function, machine)
            if parts and group is GROUPS[0] and "peers" in args.only:
                pool.submit(compile_peers, parts[-1][0], machine)


def fail(why):
    print(f"gpu_check.sh: {why}", file=sys.stderr)
    sys.exit(2)


def library_folders():
    """Where NVIDIA's libraries may lie: those of the toolkit, and those of PyTorch."""
    folders = [Path("/usr/local/cuda/lib64"), *Path("/usr/local").glob("cuda-*/lib64")]
    for path in sys.path:
        folders += sorted(Path(path or ".").glob("nvidia/*/lib"))
    return folders


def environment_of(root, program):
    """Variables with which the programs find their libraries, and Open MPI its parts."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "PMIX_MCA_pcompress_base_silence_warning": "1"}
    folders = [str(root / "lib")] if (root / "lib").is_dir() else []
    if (mpi := root / "mpi").is_dir():
        # isolated: the launcher that asks for no ssh.
        env |= {"OPAL_PREFIX": str(mpi), "PMIX_INSTALL_PREFIX": str(mpi),
                "OMPI_MCA_plm": "isolated", "PATH": f"{mpi}/bin:{env['PATH']}"}
    for _ in range(2):  # once to see what is missing, once to see that it was found
        env["LD_LIBRARY_PATH"] = ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
        found = subprocess.run(["ldd", program], env=env, capture_output=True, text=True)
        missing = re.findall(r"(\S+) => not found", found.stdout)
        folders += [str(folder) for folder in library_folders()
                    if any((folder / name).exists() for name in missing)]
    if missing:
        fail(f"no {', '.join(missing)} here, which belong to the CUDA toolkit, or to PyTorch")
    if not env["LD_LIBRARY_PATH"]:
        del env["LD_LIBRARY_PATH"]
    return env


def device(query):
    """What nvidia-smi says of the first GPU; empty if there is none."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader",
                               "--id=0"], check=True, capture_output=True, text=True).stdout.strip()
    return ""


def about(args):
    """The head of the results."""
    name = device("name")
    if not name and args.backend == "cuda":
        fail("no GPU here: nvidia-smi finds none")
    what = device("driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit")
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text(), re.MULTILINE)
    return [f"# {name or args.backend}", "",
            f"{time.strftime('%Y-%m-%d', time.gmtime())}. {args.built} Driver, memory, highest clocks "
            f"(GPU, memory), power: {what or 'none'}. Host: {os.cpu_count()} cores, "
            f"{system[1] if system else 'unknown system'}."]


def some_of(legal):
    def parse(text):
        if not text or not set(text.split(",")) <= set(legal):
            raise argparse.ArgumentTypeError(f"'{text}'; legal are some of {','.join(legal)}")
        return text.split(",")
    return parse


def seconds(text):
    if not text.isdecimal() or int(text) < 10:
        raise argparse.ArgumentTypeError(f"'{text}'; legal are 10 and more seconds")
    return int(text)


def parse_args():
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__.split("\n")[0])
    parser.error = fail  # in one line
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent,
                        help="of the tree, or of what --pack gathered")
    parser.add_argument("--out", type=Path, default="runs/gpu_check", help="folder for the results")
    parser.add_argument("--only", type=some_of(PARTS), default=PARTS, help=",".join(PARTS))
    parser.add_argument("--limit", type=seconds, default=480, help="seconds for everything")
    parser.add_argument("--backend", default="cuda", help="to try the script where no GPU is")
    parser.add_argument("--built", default="", help="a sentence on what is tested")
    parser.add_argument("--check-arguments", action="store_true", help="and do nothing else")
    args = parser.parse_args()
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out}: no folder")
    return args


def main():
    args = parse_args()
    if args.check_arguments:
        return
    begin = time.monotonic()
    bin_folder = args.root / "build/cuda/bin"
    environment = environment_of(args.root, bin_folder / "ch07_ddp")
    try:
        call([bin_folder / "ch07_ddp", "--help"], 60, environment)
    except (Failed, OSError) as error:
        fail(f"{bin_folder}/ch07_ddp does not start: {error}")
    head = about(args)
    print("\n".join(head), flush=True)
    results = Results(args.out, head)
    with tempfile.TemporaryDirectory() as folder:
        # Not much text, for the validation at the end of each run.
        text = Path(folder) / "text"
        text.write_bytes((args.root / "runs/bible.txt").read_bytes()[:50_000])
        machine = Machine(args.root, bin_folder, text, args.backend, environment,
                          workers=max(2, (os.cpu_count() or 2) // 2))
        measure(args, machine, results, begin + args.limit)
    print(f"results: {args.out}/results.md", flush=True)
    sys.exit(1 if any(part.failed for part in results.parts) else 0)


if __name__ == "__main__":
    main()
