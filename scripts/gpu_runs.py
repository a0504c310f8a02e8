"""Short training runs on a GPU, and what each must equal: tables, and who judges them.

The tests of label cuda hold the kernels to tolerances that are derived. Here whole runs are seen to
learn like the CPU, to do the same twice, and to have the same bits where a policy or the ranks are
others. scripts/gpu_measure.py runs the tables.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SMALL = "--model tiny --batch 8 --steps 6"
LLAMA = "--model llama-tiny --batch 8 --steps 6"
EXPERTS = "--model moe-tiny --batch 8 --steps 6"
LONG = "--model llama-tiny --seq-len 512 --batch 2 --micro-batch 1 --steps 6 --ranks 2 --cp 2"
# Chapter, flags, and by how much of the CPU's a loss may differ. In 16 bits a sum may round to the
# neighbor, 2^-9 away in BF16; FP8 has fewer bits, but the scales come from the same rule. A sign of
# Lion, or the expert of a token, may turn on one rounding.
BESIDE_CPU = [
    ("01_sgd", f"{SMALL} --momentum 0.9", 1e-3),
    ("02_adamw", SMALL, 1e-3),
    ("32_optimizers", f"{SMALL} --optimizer lion --lr 1e-4", 1e-2),
    ("32_optimizers", f"{SMALL} --optimizer adafactor", 1e-2),
    ("32_optimizers", f"{SMALL} --optimizer adamw8bit", 1e-2),
    ("32_optimizers", f"{SMALL} --optimizer muon", 1e-3),
    ("32_optimizers", f"{SMALL} --optimizer muon --newton-schulz bf16", 2e-2),
    ("03_schedules", f"{SMALL} --schedule cosine --warmup 2", 1e-3),
    ("04_clipping", f"{SMALL} --micro-batch 2 --clip 1", 1e-3),
    ("05_mixed_precision", f"{SMALL} --precision bf16", 2e-2),
    ("05_mixed_precision", f"{SMALL} --precision fp16", 2e-2),
    ("06_checkpointing", f"{SMALL} --precision bf16 --recompute selective", 2e-2),
    ("07_ddp", f"{SMALL} --micro-batch 4 --ranks 2", 1e-3),
    ("08_zero1", f"{SMALL} --micro-batch 4 --ranks 2", 1e-3),
    ("09_zero2", f"{SMALL} --micro-batch 4 --ranks 2", 1e-3),
    ("10_zero3", f"{SMALL} --micro-batch 4 --ranks 2", 1e-3),
    ("11_tensor_parallel", f"{SMALL} --ranks 2 --tp 2", 1e-3),
    ("12_pipeline_parallel", f"{SMALL} --micro-batch 4 --ranks 2 --pp 2", 1e-3),
    ("13_3d_parallel", f"{SMALL} --micro-batch 2 --ranks 8 --tp 2 --pp 2", 1e-3),
    ("14_stability", f"{SMALL} --agc 0.01", 1e-3),
    ("15_batch_size", f"{SMALL} --micro-batch 4 --ranks 2", 1e-3),
    ("16_fp8", f"{SMALL} --precision fp8", 4e-2),
    ("17_head_chunks", f"{SMALL} --head-chunk 2", 1e-3),
    ("18_offload", f"{SMALL} --offload inputs", 1e-3),
    ("19_llama", LLAMA, 1e-3),
    ("19_llama", f"{LLAMA} --precision bf16", 2e-2),
    ("20_context_parallel", f"{LONG} --context gather", 1e-3),
    ("20_context_parallel", f"{LONG} --context ulysses", 1e-3),
    ("20_context_parallel", f"{LONG} --context ring", 1e-3),
    ("21_moe", EXPERTS, 1e-2),
    ("21_moe", f"{EXPERTS} --precision bf16", 3e-2),
    ("26_packing", f"{SMALL} --documents --end-of-text 10", 1e-3),
    ("27_data_order", f"{SMALL} --micro-batch 2 --ranks 4 --documents --end-of-text 10", 1e-3),
    ("36_finetune", f"{SMALL} --micro-batch 2 --ranks 4 --documents --end-of-text 10", 1e-3),
    ("28_async_checkpoint", f"{SMALL} --micro-batch 2 --ranks 4", 1e-3),
    ("29_monitor", f"{SMALL} --micro-batch 4 --ranks 2 --watch-every 2", 1e-3),
    ("30_hsdp", f"{SMALL} --micro-batch 2 --ranks 4 --replicas 2", 1e-3),
    ("33_mesh", f"{LONG} --cp 2 --replicas 2 --ranks 8", 1e-3),
    ("34_scaling", f"{SMALL} --mup 32,2 --clip 1", 1e-3),
    ("38_pretrain", f"{SMALL} --micro-batch 2 --ranks 4 --replicas 2 --documents --end-of-text 10", 1e-3),
    ("22_expert_parallel", f"{EXPERTS} --micro-batch 4 --ranks 2 --ep 2", 1e-2)]
POLICIES = ["every:2", "sqrt", "full", "selective"]

# Ranks that share the GPU: chapter, ranks, flags, whose trace it must have, and what both run: NANO.
NANO = "--model nano --batch 32 --micro-batch 4 --steps 4 --clip 1"
ONE, SHARED = "06_checkpointing", "11_tensor_parallel"
RANKS = ([(chapter, ranks, "", ONE) for chapter in ("07_ddp", "08_zero1", "09_zero2", "10_zero3")
          for ranks in (2, 4)] +
         [("12_pipeline_parallel", 2, f"--pp 2 --pipeline {name}", ONE)
          for name in ("gpipe", "1f1b", "interleaved", "zb-h1")] +
         [("13_3d_parallel", 4, "--pp 2", ONE), ("30_hsdp", 4, "--replicas 2", ONE),
          # What is shared between ranks is multiplied in other shapes.
          ("11_tensor_parallel", 2, "--tp 2 --sequence-parallel", SHARED),
          ("13_3d_parallel", 4, "--tp 2 --pp 2", SHARED)])
# Sequence parallelism exchanges each sequence of a part by itself, and waits: 26,900 times in a run of
# NANO, ZeRO-3 900 times. Processes take turns on the GPU, a few ms each, so by NCCL it has less to do.
BRIEF = "--model nano --layers 2 --batch 4 --micro-batch 4 --steps 2 --clip 1"
# As processes that talk by NCCL. They take turns on the GPU, so that each run takes ten seconds.
NCCL = [("07_ddp", 2, "", ONE), ("10_zero3", 2, "", ONE),
        ("12_pipeline_parallel", 2, "--pp 2 --pipeline 1f1b", ONE),
        ("11_tensor_parallel", 2, "--tp 2 --sequence-parallel", SHARED, BRIEF),
        ("08_zero1", 2, "", ONE), ("09_zero2", 4, "", ONE),
        ("13_3d_parallel", 4, "--tp 2 --pp 2", SHARED)]


class Failed(Exception):
    """A program that did not end well: its last line, and all that it printed."""

    def __init__(self, why, output=""):
        super().__init__(why)
        self.output = output


class NotRun(Failed):
    """No time was left to run it."""


def call(command, seconds, environment=None, tell=lambda line: None):
    """What it printed on both streams; tell() has each line as it comes. Raises Failed."""
    if seconds < 1:
        raise NotRun("not run: out of time")
    process = subprocess.Popen([str(word) for word in command], env=environment, text=True,
                               errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    overran = threading.Event()

    def stop():
        overran.set()
        # mpirun ends its ranks when it is asked to end, and not when it is killed.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
                time.sleep(2)

    timer = threading.Timer(seconds, stop)
    timer.start()
    output = ""
    with process:
        for line in process.stdout:
            output += line
            tell(line.rstrip())
    timer.cancel()
    if overran.is_set():
        raise Failed(f"overran {seconds:.0f} s", output)
    if process.returncode != 0:
        last = (output.strip().splitlines() or [""])[-1]
        raise Failed(f"status {process.returncode}: {last[:300]}", output)
    return output


@dataclass
class Machine:
    """How the programs of a build are started here."""
    root: Path  # of the tree, or of what stands for it
    bin: Path
    text: Path
    backend: str
    environment: dict
    workers: int

    def mpirun(self, processes):
        return ["bash", self.root / "tests/common/comm/nccl.sh", processes]

    def trace(self, part, chapter, flags, backend=None, processes=0):
        """The text of --trace. processes: under mpirun, by NCCL."""
        backend = backend or self.backend
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace"
            call([*(self.mpirun(processes) if processes else []), self.bin / f"ch{chapter}",
                  "--data", self.text, "--quiet", "--backend", backend, "--trace", path,
                  *flags.split(), *(["--threads", 2] if backend == "cpu" else [])],
                 min(100, part.left()), self.environment)
            return path.read_text()


def losses(trace):
    return [float.fromhex(json.loads(line)["loss"]) for line in trace.splitlines()]


def beside_cpu(trace, chapter, flags, bound):
    """Largest difference of losses, and whether it does the same twice."""
    cpu = losses(trace(chapter, flags, "cpu"))
    first, second = (trace(chapter, flags) for _ in range(2))
    gpu = losses(first)
    apart = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu, strict=True))
    bad = []
    if not all(abs(a - b) <= bound * abs(a) for a, b in zip(cpu, gpu)):  # of NaN: false
        bad.append(f"more than {bound:g}")
    if first != second:
        bad.append("another trace the second time")
    seen = f"loss {gpu[0]:.5f} to {gpu[-1]:.5f}, at most {apart:.1e} from cpu"
    return not bad, f"{seen}{'; FAILED: ' * bool(bad)}{', '.join(bad)}"


def same_as(of, wanted, trace):
    """wanted: the future of a trace; trace(): the one that must equal it."""
    same = trace() == wanted.result()
    return same, f"the bits of {of}" if same else f"FAILED: not the bits of {of}"


def judge(part, checks, workers):
    """Runs all (name, check), and writes a row for each, in their order. check() returns whether all is well, and
    what was seen."""
    def judged(name, check):
        try:
            return check()
        except NotRun as error:
            return None, str(error)
        except Failed as error:
            part.details(name, f"{error}\n{error.output}")
            return False, f"FAILED: {error}"
        except (OSError, ValueError, KeyError) as error:
            return False, f"FAILED: {error}"

    if not part.lines:
        part.row("what", "seen")
    with ThreadPoolExecutor(workers) as pool:
        futures = [(name, pool.submit(judged, name, check)) for name, check in checks]
        for name, future in futures:
            good, text = future.result()
            part.row(name, text, good=good)


def chapters(part, machine):
    trace = partial(machine.trace, part)
    checks = [(f"{chapter} `{flags.replace(' --batch 8 --steps 6', '')}`", partial(beside_cpu, trace, chapter, flags, bound))
              for chapter, flags, bound in BESIDE_CPU]
    with ThreadPoolExecutor(2) as pool:
        for precision in ("fp32", "bf16"):
            common = f"{SMALL} --micro-batch 4 --precision {precision} --recompute"
            wanted = pool.submit(trace, "06_checkpointing", f"{common} none")
            checks += [(f"06_checkpointing, {precision}, {policy}",
                        partial(same_as, "`none`", wanted,
                                partial(trace, "06_checkpointing", f"{common} {policy}")))
                       for policy in POLICIES]
        judge(part, checks, machine.workers)


def ranks(part, machine):
    """Ranks that are threads of one process."""
    share_the_gpu(part, machine, RANKS, machine.workers,
                  lambda flags, count: (f"{flags} --ranks {count}", {}))


def nccl(part, machine):
    """Ranks that are processes. Their runs come one after the other: each fills the GPU with kernels that wait."""
    def tests():
        call([*machine.mpirun(2), machine.bin.parent / "tests/comm_nccl_tests", "--gtest_brief=1"],
             min(60, part.left()), machine.environment)
        return True, "passed"

    judge(part, [("comm_nccl_tests on 2 processes", tests)], 1)
    share_the_gpu(part, machine, NCCL, 1, lambda flags, count: (flags, {"processes": count}))


def share_the_gpu(part, machine, table, workers, start):
    """start(flags, ranks): flags and arguments of trace() for so many."""
    trace = partial(machine.trace, part)
    with ThreadPoolExecutor(2) as pool:
        wanted, checks = {}, []
        for chapter, count, own, of, *common in table:
            common = common[0] if common else NANO
            if (of, common) not in wanted:
                shared = " --tp 2 --ranks 2" if of == SHARED else ""
                wanted[of, common] = pool.submit(trace, of, common + shared)
            flags, how = start(f"{common} {own}", count)
            checks.append((f"{chapter}{f' `{own}`' if own else ''}, {count} ranks",
                           partial(same_as, of[:2], wanted[of, common],
                                   partial(trace, chapter, flags, **how))))
        judge(part, checks, workers)
