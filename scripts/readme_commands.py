#!/usr/bin/env python3
"""Runs the commands that READMEs tell a reader to run, and says which do not do so: those of the
chapters, and of the pages that show how to run one.

    scripts/readme_commands.py [--build build/cpu] [NN|PAGE ...]

Every ```sh block of a README is run as it stands, but on the first part of the text, and what trains
on runs/bible.txt takes three steps, so that each takes seconds. Programs must have been built: what builds, installs
or measures is passed over, and of a ctest it is only asked whether it finds tests. The first command
that fails ends a block. A block must end with status 0; where the text before it ends with "refused:"
with 2. Where the text beside it says "differ" it may end with 1, where it says "status 3" with that.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chapter_tree

ROOT = Path(__file__).resolve().parents[1]
TRAIN = {name for name, row in chapter_tree.chapters().items() if row.trains}
PASSED_OVER = re.compile(r"^(# |scripts/(?!text.sh --grammar)|(bash|tar -xf ladder.tar) scripts|cmake |ninja |mkdir |build/cuda|$)")
PAGES = ["README.md", "docs/running.md", "docs/one_step.md", "docs/recipe.md"]
TEXT, STEPS = ROOT / "runs/bible.txt", 3
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """(line, commands, the paragraphs before and after it) of each block."""
    for found in BLOCK.finditer(text):
        before = text[:found.start()].rstrip().rpartition("\n\n")[2]
        after = text[found.end():].lstrip().partition("\n\n")[0]
        commands = re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE).replace("\\\n", " ")
        yield text.count("\n", 0, found.start()) + 1, commands, (before, after)


def shortened(commands):
    """The same commands with a few steps of training, without those that are passed over."""
    lines = []
    for line in commands.splitlines():
        line = re.sub(r"^cmake --build [^&]*&& ", "", line)
        if PASSED_OVER.match(line):
            continue
        line = re.sub(r"(ctest .*)", r"\1 -N | tee /dev/stderr | grep -q 'Total Tests: [1-9]'", line)
        program = re.search(r"bin/ch(\w+)", line)
        trains = not program or program[1] in TRAIN  # others know no --steps
        keeps = re.match(r'\w+="', line)  # flags of later lines
        if trains and not keeps and "--data runs/bible.txt" in line:  # a run of its own; exercises' are short
            line = re.sub(r"--steps (\d+)", lambda m: f"--steps {min(int(m[1]), STEPS)}", line)
            line = re.sub(r"--(warmup|eval-every|decay-steps) \d+", r"--\1 1", line)
            line += "" if "--steps" in line else f" --steps {STEPS}"
        lines.append(line)
    return "\n".join(lines) + "\n" if lines else ""


def legal(around):
    """Statuses that a block may end with."""
    statuses = {2} if around[0].endswith("refused:") else {0}
    for paragraph in around:
        if paragraph.startswith("*Change it.*"):  # of another program
            continue
        statuses |= {1} if "differ" in paragraph else set()
        statuses |= {int(status) for status in re.findall(r"status (\d)", paragraph)}
    return statuses


def run_readme(readme, here):
    """Runs a README's blocks in the folder `here`. Returns the faults."""
    faults, function = [], ""
    for line, commands, around in blocks(readme.read_text(encoding="utf-8")):
        commands = shortened(commands)
        if not commands:
            continue
        if re.search(r"^run\(\)", commands, re.MULTILINE):  # for the exercises that follow
            function = commands
            continue
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        began = time.time()
        done = subprocess.run(["bash", "-c", "set -e -o pipefail\n" + function + commands], cwd=here,
                              env=environment, capture_output=True, text=True, errors="replace")
        where = f"{readme.name if readme.parent == ROOT else '/'.join(readme.parts[-2:])}:{line}"
        print(f"{where}: status {done.returncode}, {time.time() - began:.0f} s", flush=True)
        if done.returncode not in legal(around):
            said = (done.stderr.strip() or done.stdout.strip())[-300:]
            faults.append(f"{where}: status {done.returncode}\n{commands}{said}")
    return faults


def workplace(folder, build):
    """A folder that looks like the project to the commands, with a short text."""
    here = Path(folder)
    (here / "runs").mkdir()
    (here / "runs/bible.txt").write_bytes(TEXT.read_bytes()[:100_000])
    (here / "build").mkdir()
    (here / "build/cpu").symlink_to(build.resolve())
    for name in ["kernels", "common", "chapters", "scripts"]:
        (here / name).symlink_to(ROOT / name)
    return here


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu")
    parser.add_argument("wanted", nargs="*", metavar="NN|PAGE", help=f"legal pages: {' '.join(PAGES)}")
    args = parser.parse_args()
    for path, fix in [(args.build / "bin", "build the programs"), (TEXT, "scripts/text.sh")]:
        if not path.exists():
            print(f"readme_commands.py: {path} is missing: {fix}", file=sys.stderr)
            return 2
    chapters = sorted((ROOT / "chapters").glob("[0-9][0-9]_*/README.md"))
    readmes = {page: ROOT / page for page in PAGES} | {path.parent.name[:2]: path for path in chapters}
    if unknown := set(args.wanted) - readmes.keys():
        print(f"readme_commands.py: {' '.join(sorted(unknown))}: legal are {' '.join(readmes)}",
              file=sys.stderr)
        return 2
    faults = []
    for readme in [path for name, path in readmes.items() if not args.wanted or name in args.wanted]:
        with tempfile.TemporaryDirectory() as folder:
            faults += run_readme(readme, workplace(folder, args.build))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
