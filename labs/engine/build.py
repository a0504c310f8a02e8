"""Compiling a check or a chapter's program with a student's files, by the commands that CMake has
for the chapter's own."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .labs import Refused

SECONDS, MEGABYTES = 120, 2048  # of a compiler, which a file can keep busy for ever


class DoesNotCompile(Exception):
    """What the compiler says."""


class Build:
    """A folder that CMake has configured with Ninja."""

    def __init__(self, root, folder):
        self.root, self.folder = root, Path(folder)
        self.wary = False  # whether the files are a stranger's, who may want to read others
        self._commands = None

    def prepare(self, targets):
        """Builds libraries and references; says so where that takes long."""
        if not (self.folder / "build.ninja").is_file():
            if self.folder != self.root / "build/cpu":
                raise Refused(f"{self.folder} is no build folder; cmake --preset cpu makes build/cpu")
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

    def compile(self, source, work, out, extra=()):
        """One object `out` of a source, the files of `work` before those of the tree."""
        words, _ = self.compile_command(source)
        if (work / source).is_file():
            words[words.index("-c") + 1] = str(work / source)
        # A warning is no reason to fail a student; -Werror of the tree comes earlier and loses.
        more = ["-iquote", str(work), "-w", "-fmax-errors=3", "-fdiagnostics-color=never", *extra]
        if not self.wary:
            self._run([*cached(words[:1]), *words[1:], *more, "-o", str(out)])
            return
        read = out.with_suffix(".read")
        self._run([*words, *more, "-pipe", f"-Wa,--MD,{read}", "-o", str(out)])
        # The assembler reads files, too (.incbin), and those are in no list of includes.
        main = Path(words[words.index("-c") + 1])
        if others := set(rule(read.read_text(encoding="utf-8"))) - {str(main), main.name}:
            raise DoesNotCompile(f"the assembler reads {min(others)}, which it may not")

    def includes(self, source, work):
        """The files that compiling it would read."""
        words, _ = self.compile_command(source)
        if (work / source).is_file():
            words[words.index("-c") + 1] = str(work / source)
        words.remove("-c")
        text = self._run([*words, "-iquote", str(work), "-w", "-M"])
        return {Path(os.path.realpath(self.folder / name)) for name in rule(text)}

    def link(self, target, source, objects, out):
        """The program `target` with `objects` in place of that of `source`."""
        output = str(self.binary(target).relative_to(self.folder))
        run = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", output], capture_output=True, text=True)
        line = run.stdout.strip().removeprefix(": &&").removesuffix("&& :")
        words = shlex.split(line)
        _, replaced = self.compile_command(source)
        at = words.index(replaced)
        words[at : at + 1] = [str(path) for path in objects]
        words[words.index("-o") + 1] = str(out)
        self._run(words)

    def program(self, target, source, lab, work, scratch):
        """Compiles and links `target` with the lab's files of `work`; the path of the program."""
        scratch.mkdir(parents=True, exist_ok=True)
        included = f"chapters/{lab.name}/main.cpp"  # by the check, where a lab takes functions of it
        sources = [source, *(path for path in lab.files if path.endswith(".cpp") and path not in (source, included))]
        objects = [scratch / f"{target}.{i}.o" for i in range(len(sources))]
        self.compile_command(source)  # reads the commands, once
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda path, out: self.compile(path, work, out), sources, objects))
        self.link(target, source, objects, scratch / target)
        return scratch / target

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


def rule(text):
    """The names in a rule of make: of what a file is made."""
    return shlex.split(text.replace("\\\n", " ").split(":", 1)[1])


def cached(compiler):
    """The compiler through ccache, where that is."""
    ccache = shutil.which("ccache")
    return ["env", "CCACHE_SLOPPINESS=pch_defines,time_macros", ccache, *compiler] if ccache else compiler


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1]
