"""Sections of docs/results/*.md, written by the scripts that measured them: with the machine, the
commit and the command."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

from marked import replaced  # noqa: E402
from measure import commit, machine  # noqa: E402

# What decides how threads of the programs wait and where they run, and what peers take the
# processor for.
SETTINGS = ["OMP_WAIT_POLICY", "OMP_PROC_BIND", "OPENBLAS_CORETYPE", "DNNL_MAX_CPU_ISA"]


def this_command():
    """How this script was called, in a shell's words."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    chosen = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    return " ".join([*chosen, f"python3 {script}", shlex.join(sys.argv[1:])]).strip()


def write_section(path, name, title, body):
    """Replaces one section of a file of results, or adds it."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    text = path.read_text() if path.exists() else f"# {path.stem.replace('_', ' ').capitalize()}\n"
    compiler = subprocess.run(["c++", "-dumpfullversion"], check=True, stdout=subprocess.PIPE,
                              text=True).stdout.strip()
    origin = f"Machine: {machine()}; GCC {compiler}. Commit {commit()}; `{this_command()}`."
    if begin not in text:
        text += f"\n{begin}{end}"
    path.write_text(replaced(text, name, f"## {title}\n\n{origin}\n\n{body}"))


def benchmarks(program, pattern, repetitions, *flags):
    """What Google Benchmark reports of a program: its context, and of each repetition {counter: value}
    with the name of what was timed as "name"."""
    report = json.loads(subprocess.run(
        [program, f"--benchmark_filter={pattern}", f"--benchmark_repetitions={repetitions}",
         "--benchmark_format=json", *flags], check=True, stdout=subprocess.PIPE, text=True).stdout)
    runs = [run for run in report["benchmarks"] if run["run_type"] == "iteration"]
    for run in runs:
        run["name"] = re.sub(r"/(real_time|iterations:1)$", "", run["run_name"])
    return report["context"], runs


class Both(io.StringIO):
    """Shows what is printed on the screen, and keeps it."""

    def write(self, text):
        sys.__stdout__.write(text)
        return super().write(text)

    def flush(self):
        sys.__stdout__.flush()


@contextlib.contextmanager
def section(path, name, title):
    """What is printed inside also becomes a section of the file `path`, as it stands; with None it
    is only printed."""
    if path is None:
        yield
        return
    kept = Both()
    with contextlib.redirect_stdout(kept):
        yield
    write_section(Path(path), name, title, f"```\n{kept.getvalue().rstrip()}\n```")


def add_write(parser):
    parser.add_argument("--write", metavar="FILE",
                        help="put the result into this file too, such as docs/results/cpu_amx.md")
