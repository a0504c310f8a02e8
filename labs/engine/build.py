"""Compiling a check or a chapter's program with a student's files, by the commands that CMake has
for the chapter's own."""

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import transplant
from .labs import Refused
from .room import HOME, Room, compiler_programs

SECONDS, MEGABYTES = 120, 2048  # of a compiler, which a file can keep busy for ever
LARGEST_OBJECT, LARGEST_PREPROCESSED = 256 << 20, 32 << 20
PREPROCESS = ["-E", "-fpch-preprocess"]  # a precompiled header stays one
BEFORE_MAIN = (b".init_array", b".preinit_array", b".ctors")
STUDENT = "/submission"  # a student's files in a room


class DoesNotCompile(Exception):
    """What the compiler says."""


class Build:
    """A folder that CMake has configured with Ninja."""

    def __init__(self, root, folder):
        self.root, self.folder = root, Path(folder)
        self.notes = []  # for whoever grades: what an object of a stranger's has and the tree's has not
        self._commands = None

    @contextlib.contextmanager
    def alone(self):
        """Nobody else does in this folder meanwhile what cannot be done twice at once."""
        with (self.folder / "labs.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another lab.py, which builds in {self.folder}", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def prepare(self, targets):
        """Builds libraries and references; says so where that takes long."""
        if not (self.folder / "build.ninja").is_file():
            if self.folder != self.root / "build/cpu":
                raise Refused(f"{self.folder} is no build folder; cmake --preset cpu makes build/cpu")
            self.folder.mkdir(parents=True, exist_ok=True)
        with self.alone():
            self._prepare(targets)

    def _prepare(self, targets):
        if not (self.folder / "build.ninja").is_file():
            print("configuring build/cpu, once", flush=True)
            run = subprocess.run(["cmake", "--preset", "cpu"], cwd=self.root, capture_output=True, text=True)
            if run.returncode != 0:
                raise Refused(f"cmake --preset cpu fails: {last_line(run.stderr)}; scripts/setup.sh installs what it wants")
        if any(not self.binary(target).is_file() for target in targets):
            there = (self.folder / "labs/libladder_lab.a").is_file()
            what = "the reference, once: a minute" if there else "the libraries and the reference, once: some minutes"
            print(f"building {what}", flush=True)
        run = subprocess.run(["ninja", "-C", self.folder, *targets], capture_output=True, text=True)
        if run.returncode != 0:
            print(run.stdout[-3000:])
            raise Refused(f"the tree does not build: ninja -C {self.folder} {' '.join(targets)}")

    def binary(self, target):
        return self.folder / ("labs" if target.startswith("lab_") else "bin") / target

    def compile_command(self, source):
        """How CMake compiles a source of the tree: words, without what names the output."""
        if self._commands is None:
            self._commands = json.loads((self.folder / "compile_commands.json").read_text())
        wanted = str(self.root / source)
        for entry in self._commands:
            if entry["file"] == wanted:
                words = shlex.split(entry["command"])
                at = words.index("-o")
                return words[:at] + words[at + 2 :], words[at + 1]
        raise Refused(f"{self.folder} does not compile {source}; cmake --preset cpu may help")

    def compiling(self, source, work):
        """The words that compile a source, that of `work` if there is one, and the tree's before it."""
        words, _ = self.compile_command(source)
        if source.startswith("labs/"):
            words.append("-DLADDER_STUDENT")  # labs/check.h: without what must come out
        if (work / source).is_file():
            words[words.index("-c") + 1] = str(work / source)
        # A warning is no reason to fail a student; -Werror of the tree comes earlier and loses.
        return [*words, "-iquote", str(work), "-w", "-fmax-errors=3", "-fdiagnostics-color=never"]

    def linking(self, target, objects, out):
        """The words that link the program `target`.
        @param objects {source: what takes the place of its object}, that with main() first; what the program has from a library comes beside it"""
        output = str(self.binary(target).relative_to(self.folder))
        run = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", output], capture_output=True, text=True)
        line = run.stdout.strip().removeprefix(": &&").removesuffix("&& :")
        words, after = shlex.split(line), 0
        for source, path in objects.items():
            own = self.compile_command(source)[1]
            at = words.index(own) if own in words else after
            words[at : at + (own in words)] = [str(path)]
            after = after or at + 1
        words[words.index("-o") + 1] = str(out)
        return words

    def program(self, target, source, lab, work, scratch, guarded=False):
        """Compiles and links `target` with the lab's files of `work`; the path of the program."""
        scratch.mkdir(parents=True, exist_ok=True)
        sources = sources_of(source, lab)
        # kernels/cuda/on_cpu/shared.ld knows a CUDA source's object by its name.
        objects = [scratch / f"{target}.{i}.{Path(path).name}.o" for i, path in enumerate(sources)]
        self.compile_command(source)  # reads the commands, once

        def compile(path, out):
            words = self.compiling(path, work)
            if guarded:
                self._run([*words, *PREPROCESS, "-o", str(out.with_suffix(".i"))])
                self._demand_closed(lab, work, out.with_suffix(".i"))
            self._run([*cached(words[:1]), *words[1:], "-o", str(out)])
            self._note(path, out)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile, sources, objects))
        self._run(self.linking(target, dict(zip(sources, objects)), scratch / target))
        return scratch / target

    def program_in_rooms(self, target, source, lab, work, scratch):
        """The same of a stranger's files: compiler and linker have no rights, a root of their own, and
        in it what they must read. The compiler's has nothing that was made from the reference."""
        sources = sources_of(source, lab)
        room = Room(scratch / f"compile-{target}")
        room.put_programs(compiler_programs(self.compile_command(source)[0][0]))
        own = [str(self.root / path) for path in lab.files]
        for path in sources:
            room.put([name for name in self.reads(path) if name not in own])
        for path in lab.files:
            room.put_as(work / path, f"{STUDENT}/{path}")
        objects = {}
        for i, path in enumerate(sources):
            words = [word.replace(str(work), STUDENT) for word in self.compiling(path, work)]
            self._demand_closed(lab, work, self._made_in(room, [*words, *PREPROCESS, "-o", f"{HOME}/{i}.i"]))
            objects[path] = self._made_in(room, [*words, "-pipe", "-o", f"{HOME}/{i}.o"])
            self._note(path, objects[path])
        return self._link_in_room(target, objects, scratch)

    def _demand_closed(self, lab, work, preprocessed):
        """@throws NotTaken if what was taken of a submission is more than bodies"""
        if preprocessed.stat().st_size > LARGEST_PREPROCESSED:
            raise DoesNotCompile("macros make too much of it")
        seen = preprocessed.read_text(encoding="utf-8", errors="replace")
        for path in lab.files:
            transplant.demand_closed((work / path).read_text(encoding="utf-8"), seen, Path(path).name)

    def _note(self, source, made):
        """Notes an object that runs something before main(), if the tree's does not."""
        own = self.folder / self.compile_command(source)[1]
        if own.is_file() and any(word in made.read_bytes() and word not in own.read_bytes() for word in BEFORE_MAIN):
            self.notes.append(f"{source}, compiled with this submission, runs code before main()")

    def _link_in_room(self, target, objects, scratch):
        # What the linker reads for the reference, it says itself.
        own, listed = [self.compile_command(source)[1] for source in objects], scratch / f"{target}.read"
        words = self.linking(target, {}, scratch / f"{target}.reference")
        self._run([*words, f"-Wl,--dependency-file={listed}"])
        room = Room(scratch / f"link-{target}")
        room.put_programs(compiler_programs(words[0]))
        room.put([name for name in rule(listed.read_text(encoding="utf-8")) if name not in own], self.folder)
        inside = {}
        for i, (source, path) in enumerate(objects.items()):
            inside[source] = f"/{i}.{Path(source).name}.o"
            room.put_as(path, inside[source])
        return self._made_in(room, self.linking(target, inside, f"{HOME}/program"), self.folder)

    def reads(self, source):
        """The files that compiling a source of the tree reads, itself among them."""
        words, output = self.compile_command(source)
        run = subprocess.run(["ninja", "-C", self.folder, "-t", "deps", output], capture_output=True, text=True)
        names = [line.strip() for line in run.stdout.splitlines() if line.startswith("    ")]
        if not names:
            raise Refused(f"{self.folder} has not built {source}: ninja -C {self.folder} labs")
        at = words.index("-include") + 1 if "-include" in words else 0
        headers = [words[at], words[at] + ".gch"] if at else []
        return [os.path.normpath(self.folder / name) for name in [*names, *headers]]

    def _made_in(self, room, words, start=None):
        """The path of what a command of a room has made."""
        outcome = room.run(words, seconds=SECONDS, megabytes=MEGABYTES, most=LARGEST_OBJECT, start=start)
        if outcome.ended:
            raise DoesNotCompile(outcome.printed.strip() or outcome.ended)
        made = room.at(words[words.index("-o") + 1])
        if made.is_symlink() or not made.is_file():
            raise DoesNotCompile("the compiler has made no file")
        return made

    def _run(self, words):
        limits = f'ulimit -v {MEGABYTES << 10}; ulimit -t {SECONDS}; exec "$@"'
        run = subprocess.Popen(
            ["sh", "-c", limits, "sh", *words], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            out, err = run.communicate(timeout=4 * SECONDS)
        except subprocess.TimeoutExpired:
            raise DoesNotCompile(f"the compiler is still running after {4 * SECONDS} s") from None
        finally:
            if run.returncode is None:  # and what it has started
                os.killpg(run.pid, signal.SIGKILL)
        if run.returncode != 0:
            raise DoesNotCompile(err.strip())
        return out


def sources_of(source, lab):
    """What is compiled anew of a program whose main() is in `source`."""
    included = f"chapters/{lab.name}/main.cpp"  # by the check, where a lab takes functions of it
    return [source, *(path for path in lab.files if path.endswith((".cpp", ".cu")) and path not in (source, included))]


def rule(text):
    """The names in a rule of make: of what a file is made."""
    return shlex.split(text.replace("\\\n", " ").split(":", 1)[1].splitlines()[0])


def cached(compiler):
    """The compiler through ccache, where that is."""
    ccache = shutil.which("ccache")
    return ["env", "CCACHE_SLOPPINESS=pch_defines,time_macros", ccache, *compiler] if ccache else compiler


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1]
