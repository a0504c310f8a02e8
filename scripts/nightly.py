#!/usr/bin/env python3
"""What scripts/nightly.sh does; it says what the parts are.

The first four are tables of runs: each must have the trace of one rank, line by line."""

import argparse
import collections
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import chapter_tree
from measure import ROOT, commit, machine

STEPS = 20
COMMS, POWERS = ("thread", "mpi"), (1, 2, 4, 8)
POLICIES = ("none", "every:2", "sqrt", "full", "selective")
PRECISIONS = ("fp32", "bf16", "fp16")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
SHARING = ("07_ddp", "08_zero1", "09_zero2", "10_zero3", "15_batch_size", "16_fp8", "18_offload")
# `ref` is the specification, not the fast one: a smaller model.
SIZES = {"cpu": "", "ref": "--layers 2 --channels 32 --heads 4"}
# Sequences of 512 tokens, which 8 ranks can share.
LONG = "--layers 2 --heads 8 --channels 64 --seq-len 512 --vocab 256"
# A token takes three experts, whose sum has an order; full experts drop tokens.
ROUTED = "--model moe-nano --layers 2 --experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05"
NANO, LLAMA = "--model nano --batch 32", "--model llama-nano --batch 32"
# Root may start processes in a container; ranks may be more than cores, and then give them way.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Run:
    """`same`: flags that one rank has, too, and that say what comes out. `own`: those of the layout,
    among them the fault of a control, which must be seen."""

    table: str
    chapter: str
    comm: str
    ranks: int
    same: str
    own: str

    @property
    def is_control(self):
        return "--fault" in self.own

    def __str__(self):
        return f"{self.chapter} {self.comm} {self.ranks} ranks {self.same} {self.own}"


def lost(operation, at=STEPS - 1):
    return f"--fault skip:{operation}:{at}"


def meshes(most_tp):
    """(TP, DP, PP) of each that nano allows on up to 8 ranks, and one on 16."""
    all_meshes = [mesh for mesh in product(POWERS, POWERS, POWERS) if mesh[0] * mesh[1] * mesh[2] <= 8]
    return [mesh for mesh in [*all_meshes, (2, 4, 2)] if mesh[0] <= most_tp]


def layers_of_a_part(pp, schedule):
    """How many of the 8 layers of nano a part has; 0 if the parts would not be equal."""
    parts = pp * (2 if schedule == "interleaved" and pp > 1 else 1)
    return 0 if 8 % parts else 8 // parts


# ---- the runs of each part -----------------------------------------------------------------------


def data():
    chapters = [*SHARING, "20_context_parallel"]
    for backend, precision, chapter, ranks, ga, comm in product(SIZES, PRECISIONS[:2], chapters, POWERS, (1, 2, 4), COMMS):
        same = f"{NANO} --backend {backend} --precision {precision} {SIZES[backend]}"
        yield Run("Layouts", chapter, comm, ranks, same, f"--micro-batch {32 // ranks // ga}")
    for precision, policy, chapter in product(PRECISIONS, POLICIES, chapters):
        same = f"{NANO} --precision {precision} --loss-scale 1024"
        yield Run("Recomputation and precision", chapter, "thread", 4, same, f"--recompute {policy} --micro-batch 4")
    for chapter, ga in product(["14_stability", "17_head_chunks", "19_llama", "21_moe", "26_packing"], (1, 2, 4)):
        yield Run("Chapters that know one rank", chapter, "thread", 1, NANO, f"--micro-batch {32 // ga}")
    for chapter in chapters:  # one lost sum of gradients, late in the run
        operation = "all_reduce" if chapter[:2] in ("07", "15", "16") else "reduce_scatter"
        yield Run("Layouts", chapter, "thread", 4, NANO, lost(operation))
    yield from around()
    yield from context()
    yield from experts()


def around():
    """What feeds, saves and watches a run changes no bit of it; nor does the size of groups that share the weights."""
    ways = {"27_data_order": [""], "28_async_checkpoint": ["--async --save saved --save-every 4 --overwrite"],
            "29_monitor": ["--watch-every 1 --alarms"], "30_hsdp": [f"--replicas {size}" for size in POWERS]}
    for precision, chapter, ranks, ga, comm in product(PRECISIONS[:2], ways, POWERS, (1, 4), COMMS):
        for way in ways[chapter]:
            if chapter != "30_hsdp" or int(way.split()[1]) <= ranks:
                yield Run("Chapters 27 to 30", chapter, comm, ranks, f"{NANO} --precision {precision}",
                          f"--micro-batch {32 // ranks // ga} {way}")


def context():
    table, chapter = "Ranks that share each sequence", "20_context_parallel"
    for model in ("gpt2-124m", "llama-nano"):
        same = f"{LONG} --batch 4 --model {model} --precision "
        for precision, way, cp, dp, comm in product(PRECISIONS[:2], ("gather", "ulysses", "ring"), POWERS, (1, 2), COMMS):
            if (model, way, cp) != ("llama-nano", "ulysses", 8):  # 4 heads of keys and values
                yield Run(table, chapter, comm, cp * dp, same + precision, f"--micro-batch 1 --cp {cp} "
                          f"--context {way} --recompute {'none' if dp == 1 else 'selective'}")
        yield Run(table, chapter, "thread", 4, same + "fp32", f"--micro-batch 1 --cp 4 --context ring {lost('recv')}")


def experts():
    table, chapter, same = "Ranks that share experts", "22_expert_parallel", f"{ROUTED} --batch 16 --precision "
    for precision, ep, ranks, ga, comm in product(PRECISIONS[:2], POWERS, POWERS, (1, 2), COMMS):
        if ranks >= ep:
            yield Run(table, chapter, comm, ranks, same + precision, f"--ep {ep} --micro-batch {16 // ranks // ga} "
                      f"--recompute {'none' if ga == 1 else 'full'}")
    yield Run(table, chapter, "thread", 4, same + "fp32", f"--ep 2 {lost('all_to_all', 16 * STEPS - 1)}")


def model():
    tp_chapter, pp_chapter = "11_tensor_parallel", "12_pipeline_parallel"
    for variant, tp, policy, comm in product(("", "--sequence-parallel"), POWERS, POLICIES, COMMS):
        yield Run("Layouts", tp_chapter, comm, tp, NANO, f"{variant} --micro-batch 8 --recompute {policy}")
    yield Run("Layouts", tp_chapter, "thread", 4, NANO, lost("all_reduce", 3))
    for schedule, pp, policy, precision, comm in product(SCHEDULES, POWERS, POLICIES, PRECISIONS[:2], COMMS):
        layers = layers_of_a_part(pp, schedule)
        if layers > (policy == "every:2") and (comm, precision) != ("mpi", "bf16"):
            yield Run("Layouts", pp_chapter, comm, pp, f"{NANO} --precision {precision}",
                      f"--pipeline {schedule} --micro-batch 4 --recompute {policy}")
    for schedule in SCHEDULES:
        yield Run("Layouts", pp_chapter, "thread", 2, NANO, f"--pipeline {schedule} --micro-batch 4 --fault swap:recv:1")


def mesh():
    run = lambda comm, axes, more: Run("Layouts", "13_3d_parallel", comm, axes[0] * axes[1] * axes[2], NANO,
                                       "--tp {} --dp {} --pp {} ".format(*axes) + f"--micro-batch {8 // axes[1]} {more}")
    for axes in meshes(most_tp=8):
        for schedule in SCHEDULES:
            if layers_of_a_part(axes[2], schedule):
                yield run("thread", axes, f"--pipeline {schedule}")
        yield run("mpi", axes, "")
        if axes[0] > 1:
            yield run("thread", axes, "--sequence-parallel --recompute selective")
    # Of each axis: a sum inside a block, a sum of gradients late in the run, a message.
    for fault in (lost("all_reduce", 3), lost("reduce_scatter"), "--fault swap:recv:1"):
        yield run("thread", (2, 2, 2), fault)


def llama():
    """Its four heads of keys and values are shared by two query heads each: tensor ranks are at most 4."""
    run = lambda chapter, comm, ranks, own, more="": Run("Layouts", chapter, comm, ranks, f"{LLAMA} {more}", own)
    table = chapter_tree.read_table()
    for chapter in (name for name in table if 4 <= table[name].number <= 19):
        for own in ("--micro-batch 32", "--micro-batch 16", "--micro-batch 8", "--micro-batch 8 --threads 3"):
            yield run(chapter, "thread", 1, own)
        if "06_checkpointing" in chapter_tree.ancestors(chapter, table):
            for precision, policy in product(PRECISIONS, POLICIES):
                yield run(chapter, "thread", 1, f"--micro-batch 8 --recompute {policy}",
                          f"--precision {precision} --loss-scale 1024")
    for chapter, ranks, ga, comm in product(SHARING, (2, 4, 8), (1, 4), COMMS):
        yield run(chapter, comm, ranks, f"--micro-batch {32 // ranks // ga}")
    for tp, variant, comm in product((2, 4), ("", "--sequence-parallel"), COMMS):
        yield run("11_tensor_parallel", comm, tp, f"{variant} --micro-batch 8 --recompute selective")
    for schedule, pp, comm in product(SCHEDULES, (2, 4, 8), COMMS):
        if layers_of_a_part(pp, schedule):
            yield run("12_pipeline_parallel", comm, pp, f"--pipeline {schedule} --micro-batch 4")
    for tp, dp, pp in meshes(most_tp=4):
        own = f"--tp {tp} --dp {dp} --pp {pp} --micro-batch {8 // dp}"
        for comm, more in [("thread", ""), ("mpi", "--pipeline zb-h1"), ("thread", "--sequence-parallel --recompute selective")]:
            if tp > 1 or "--sequence" not in more:
                yield run("13_3d_parallel", comm, tp * dp * pp, f"{own} {more}")
    for chapter, ranks, fault in [("07_ddp", 4, lost("all_reduce")), ("11_tensor_parallel", 4, lost("all_reduce", 3)),
                                  ("12_pipeline_parallel", 2, "--micro-batch 4 --fault swap:recv:1")]:
        yield run(chapter, "thread", ranks, fault)


# The pages about them: file and title.
LAYOUTS = {data: ("nightly_data_parallel", "data parallelism"), model: ("nightly_model_parallel", "shared layers"),
           mesh: ("nightly_mesh", "three axes"), llama: ("nightly_llama", "LLaMA's block")}


def told(part):
    """What scripts/nightly.sh says of a part."""
    text = (ROOT / "scripts/nightly.sh").read_text(encoding="utf-8")
    lines = re.search(rf"^#   {part} +(.+\n(?:#     +.+\n)*)", text, re.MULTILINE)[1].splitlines()
    return " ".join(line.lstrip("# ") for line in lines)


def reference_of(same):
    """The chapter whose trace on one rank all others must have."""
    return "21_moe" if ROUTED in same else "06_checkpointing"


# ---- what does them ------------------------------------------------------------------------------


class Workplace:
    """The programs of a build, and which runs they have done before."""

    def __init__(self, build):
        self.bin, digest = build / "bin", hashlib.sha256(Path(__file__).read_bytes())
        for program in sorted(self.bin.glob("ch[0-9]*")):
            digest.update(program.read_bytes())
        self.folder = ROOT / "runs/nightly" / digest.hexdigest()[:16]
        (self.folder / "done").mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fail(f"another one works in {self.folder}; wait until it has ended")
        self.texts, self.references = {}, {}
        for name, end in [("short", 100700), ("long", 101500)]:
            self.texts[name] = self.folder / f"{name}.txt"
            self.texts[name].write_text("".join(f"{i}\n" for i in range(100000, end + 1)))

    def trace_of(self, command, same, own):
        """The trace that a program writes with AdamW and clipping; or, as text, why there is none."""
        trace = self.folder / "trace.jsonl"
        trace.unlink(missing_ok=True)
        words = ["timeout", "300", *command, "--data", self.texts["long" if LONG in same else "short"], "--steps", STEPS, "--clip", 1, "--quiet",
                 *([] if "--threads" in own else ["--threads", 1]), *same.split(), *own.split(), "--trace", trace]
        # mpirun ends its ranks when it is asked to end, as by timeout, and not when it is killed.
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", env={**os.environ, **MPI_AS_ROOT}, cwd=self.folder)
        lines = trace.read_text().splitlines() if trace.is_file() else []
        if done.returncode != 0 or len(lines) != STEPS:
            return f"exit status {done.returncode}, {len(lines)} steps: {done.stderr.strip()[-200:]}"
        return lines

    def reference(self, same):
        """The trace of one rank."""
        if same not in self.references:
            chapter = reference_of(same)
            lines = self.trace_of([self.bin / f"ch{chapter}"], same, "")
            if isinstance(lines, str) or re.search("nan|inf", "".join(lines)):
                fail(f"{chapter} does not run: {same}: {lines if isinstance(lines, str) else 'not finite'}")
            self.references[same] = lines
        return self.references[same]

    def judge(self, run):
        """Whether a run has the bits that it must have, and a few words about it."""
        done = self.folder / "done" / re.sub(r"[^\w-]", ".", str(run))
        if done.exists():
            return True, "as before"
        program, began = self.bin / f"ch{run.chapter}", time.monotonic()
        command = [*MPIRUN, "-n", run.ranks, program] if run.comm == "mpi" else [program, "--ranks", run.ranks]
        lines, wanted = self.trace_of(command, run.same, run.own), self.reference(run.same)
        if isinstance(lines, str):
            return False, lines
        if (lines != wanted) != run.is_control:
            return False, "the fault is not seen" if run.is_control else \
                f"differs in step {next(i for i, pair in enumerate(zip(lines, wanted)) if pair[0] != pair[1])}"
        done.touch()
        return True, f"{1e3 * (time.monotonic() - began):.0f} ms"


def page(part, title, counts):
    """counts: {(table, chapter): [same, different]}, controls under the table ""."""
    gcc = subprocess.run(["c++", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    lines = [f"# Same bits on every layout: {title} in full", "",
             f"`scripts/nightly.sh --part {part}`, commit {commit()}, on {machine()}; GCC {gcc}. Each run takes {STEPS} steps with "
             "AdamW and `--clip 1`. Its trace has the loss, the gradient norm, the learning rate and a hash of all weights "
             "after every step. It is compared, as text, with the trace of 06_checkpointing on one rank (of 21_moe, where "
             "there are experts).", "", f"The runs: {told(part)}.", ""]
    for table in dict.fromkeys(table for table, _ in counts if table):
        lines += [f"## {table}", "", "| chapter | same | different |", "|---|---|---|"]
        lines += [f"| {chapter} | {good} | {bad} |" for (of, chapter), (good, bad) in counts.items() if of == table] + [""]
    controls = [sum(both[i] for (table, _), both in counts.items() if not table) for i in (0, 1)]
    runs = [sum(both[i] for (table, _), both in counts.items() if table) for i in (0, 1)]
    return "\n".join([*lines, "## Controls", "",
                      f"With a sum or a message lost or mixed up (`--fault`) the trace differs: {controls[0]} of "
                      f"{sum(controls)} runs.", "",
                      f"{sum(runs)} runs and {sum(controls)} controls: {runs[1] + controls[1]} failed.", ""])


def same_bits(part, build):
    """Does the runs of a part and writes its page. Returns how many failed."""
    chapters = {chapter for run in part() for chapter in (run.chapter, reference_of(run.same))}
    missing = sorted(chapter for chapter in chapters if not (build / f"bin/ch{chapter}").is_file())
    if missing:
        fail(f"not built: {', '.join(missing)} in {build / 'bin'}; the page of part {part.__name__} is about all of them")
    work, counts, began = Workplace(build), collections.defaultdict(lambda: [0, 0]), time.monotonic()
    name, title = LAYOUTS[part]
    for run in part():
        good, said = work.judge(run)
        counts["" if run.is_control else run.table, run.chapter][not good] += 1
        print(f"{('seen  ' if run.is_control else 'same  ') if good else 'FAILED'}  {run}: {said}", flush=True)
    result = ROOT / f"docs/results/{name}.md"
    result.write_text(page(part.__name__, title, counts), encoding="utf-8")
    failed = sum(bad for _, bad in counts.values())
    print(f"\n{sum(map(sum, counts.values()))} runs in {time.monotonic() - began:.0f} s: {failed} failed; see {result}")
    return failed


# ---- the other parts: how many of their commands failed -------------------------------------------


def call(*words, **how):
    """Runs a command. Returns whether it failed; status 77 says that it was not tried."""
    status = subprocess.run([str(word) for word in words], cwd=how.pop("cwd", ROOT), **how).returncode
    if status not in (0, 77):
        print(f"FAILED  {' '.join(map(str, words))}: status {status}", flush=True)
    return status not in (0, 77)


def clients(build):
    pages = {"transformers": "clients", "llama": "clients_llama", "mixtral": "clients_mixtral",
             "folders": "clients_folders"}
    return sum(call(sys.executable, "-B", f"tests/clients/test_{client}.py", "--build", build, "--install", "--result",
                    f"docs/results/{name}.md") for client, name in pages.items()) + sum(
                        call(sys.executable, "-B", f"tests/clients/test_{client}.py", "--build", build, "--install")
                        for client in ("tokens", "documents", "corpus", "events"))


def readmes(build):
    failed = call("scripts/readme_commands.py", "--build", build)
    if shutil.which("doxygen"):
        failed += call("cmake", build) or call("cmake", "--build", build, "--target", "docs")
    return failed


def labs(build):
    """All mutants of all labs, and the submissions of tests/labs/cheats.py to the autograders of two labs."""
    if call("cmake", "--build", build, "--target", "labs", stdout=subprocess.DEVNULL):
        return 1
    failed = sum(call(sys.executable, "-B", "-m", "engine.selftest", build, lab.name, "--every-mutant", cwd=ROOT / "labs")
                 for lab in sorted((ROOT / "labs").glob("[0-9]*_*")))
    with tempfile.TemporaryDirectory() as folder:
        for lab in ("08", "12x"):
            packed = f"{folder}/{lab}.zip"
            failed += (call("labs/autograder.sh", lab, packed, stdout=subprocess.DEVNULL) or
                       call(sys.executable, "-B", "tests/labs/cheats.py", packed, lab))
    return failed


def built(preset, *flags, prefix=()):
    return not (call("cmake", "--preset", preset, *flags, stdout=subprocess.DEVNULL) or
                call(*prefix, "cmake", "--build", f"build/{preset}"))


def left_out(build):
    """ctest without a preset knows none of its filters."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    of_cpu = next(preset["filter"]["exclude"]["name"] for preset in presets if preset["name"] == "cpu")
    ctest = ["ctest", "--parallel", os.cpu_count(), "--output-on-failure", "--no-tests=error", "--test-dir"]
    # ThreadSanitizer wants its memory where address randomisation may have put a library.
    fixed = ["setarch", platform.machine(), "-R"]
    return (call(*ctest, build, "--tests-regex", of_cpu) + (not built("debug") or call(*ctest, "build/debug")) +
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


# What a machine says that has a GPU's libraries, and nothing else: TREE, FILE.
BARE = """
mkdir -p "$1/usr/local/cuda" && mount --rbind -o ro "$(realpath /usr/local/cuda)" "$1/usr/local/cuda" &&
  mount -t proc proc "$1/proc" && cp "$2" "$1/tmp/ladder.tar" && tar -C "$1/tmp" -xf "$2" scripts || exit
exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /tmp/scripts/gpu_check.sh \
  --run /tmp/ladder.tar --out /tmp/found
"""


def pack(build):
    tree, file = ROOT / "build/bare", ROOT / "build/bare.tar"
    if os.geteuid() != 0 or not Path("/usr/local/cuda/lib64").is_dir() or not shutil.which("debootstrap"):
        print("nightly.sh: part pack not tried: it wants root, a toolkit in /usr/local/cuda, and debootstrap")
        return 0
    shutil.rmtree(tree, ignore_errors=True)
    if call("debootstrap", "--variant=minbase", "--include=python3", "bookworm", tree, stdout=subprocess.DEVNULL) or \
            call("scripts/gpu_check.sh", "--pack", file):
        return 1
    done = subprocess.run(["unshare", "--mount", "--net", "bash", "-c", BARE, "-", tree, file], capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip()
    good = done.returncode == 2 and said == "gpu_check.sh: no GPU here: nvidia-smi finds none"
    print(f"{'passed' if good else 'FAILED'}  a pack on a bare machine: status {done.returncode}, {said}")
    return not good


PARTS = {"data": data, "model": model, "mesh": mesh, "llama": llama, "clients": clients,
         "torture": lambda build: call("scripts/torture.sh", "--build", build), "fuzz": lambda build: call("scripts/fuzz.sh", 600),
         "readmes": readmes, "labs": labs, "left_out": left_out, "types": types,
         "machines": lambda build: call("scripts/machines.sh"), "pack": pack}


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
        failed += same_bits(part, build) if part in LAYOUTS else part(build)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
