#!/usr/bin/python3
"""Fills the measured tables of a chapter's README from real runs.

    scripts/measure.py 02        runs chapters/02_adamw/proof/measure.py and rewrites its README

A long table stands whole in docs/results/chapter_NN.md. The tables stand between <!-- measured:begin --> and <!-- measured:end -->. Needs build/cpu and,
for chapters that draw charts, python3-matplotlib. Times are of this machine, named above the
tables; take them on a machine that does nothing else.
"""

import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from marked import ROOT, replaced

TEXT = ROOT / "runs" / "bible.txt"


class Run:
    """One finished run: its command, --report, --trace and what it printed."""

    def __init__(self, chapter, flags, directory, text):
        report, trace = directory / "report.json", directory / "trace.jsonl"
        program = f"build/cpu/bin/ch{chapter}"
        self.command = " ".join([program, f"--data {text.relative_to(ROOT)}", flags])
        argv = [str(ROOT / program), "--data", str(text), *flags.split()]
        done = subprocess.run([*argv, "--report", str(report), "--trace", str(trace)], cwd=ROOT,
                              capture_output=True, text=True, errors="replace")
        # 3: it came to its end and did not train, which a table may want to show.
        if done.returncode not in (0, 3):
            raise SystemExit(f"measure.py: {self.command}: {done.stderr.strip()}")
        self.output = done.stdout
        self.report = json.loads(report.read_text())
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        self.hash = [line["param_hash"] for line in lines]
        number = lambda key: [float.fromhex(line[key]) for line in lines]
        self.loss, self.norm, self.lr = number("loss"), number("grad_norm"), number("lr")

    def memory(self, category, which="measured"):
        """Peak bytes of a category, on rank 0."""
        return self.report["memory"][0][category][which]

    def both(self, category):
        """The same, predicted and measured."""
        return both(self.memory(category, "predicted"), self.memory(category))


def run(chapter, flags, text=TEXT):
    """Runs a chapter's program on the Bible, or on another text, and returns a Run."""
    print(f"  ch{chapter} {flags}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        return Run(chapter, flags, pathlib.Path(directory), text)


def output_of(program, *words):
    """What a program of build/cpu/bin prints."""
    return subprocess.run([ROOT / "build/cpu/bin" / program, *map(str, words)], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout


def short_text(batch, seq_len):
    """The Bible's first pages, their last tenth one batch: for runs of few steps, of which
    validation would be the longest part."""
    short = ROOT / "runs" / "short.txt"
    short.write_bytes(TEXT.read_bytes()[:10 * (batch * seq_len + 1)])
    return short


def take_turns(rounds, wanted, text):
    """{name: [Run, ...]} for `wanted` {name: (chapter, flags)}: in each round every one runs once, so that a
    slow minute hits all of them."""
    runs = {name: [] for name in wanted}
    for _ in range(rounds):
        for name, (chapter, flags) in wanted.items():
            runs[name].append(run(chapter, flags, text))
    return runs


def step_ms(runs):
    """{name: [milliseconds of a step, ...]} of what took turns."""
    return {name: [r.report["step_ms_median"] for r in rounds] for name, rounds in runs.items()}


def fastest(runs):
    """Of each name: milliseconds of a step in its fastest round, as whatever else the machine does only makes a
    round slower, and most of all one of many small pieces of work. And the noise: by how much the fastest
    odd round differs from the fastest even one at most."""
    ms = step_ms(runs)
    noise = max(abs(min(m[::2]) / min(m[1::2]) - 1) for m in ms.values())
    return {name: min(m) for name, m in ms.items()}, noise


def fastest_text(one, noise):
    """What READMEs say of the noise of fastest(). `one` is what took turns."""
    return (f"Differences below {noise:.0%} say nothing: the best odd round and the best even round of one {one} "
            "differ by up to that much.")


def compare(runs):
    """Of each name: milliseconds of a step in its fastest round, and the median of its ratios to
    the first name in the same round, as a machine changes its speed less within a round than
    between rounds. And the noise: by how much that of the odd rounds and that of the even ones
    differ at most."""
    ms = step_ms(runs)
    first = next(iter(ms.values()))
    ratios = {name: [a / b for a, b in zip(all_ms, first)] for name, all_ms in ms.items()}
    median = statistics.median
    noise = max(abs(median(r[::2]) / median(r[1::2]) - 1) for r in ratios.values())
    return {name: (min(ms[name]), median(ratios[name])) for name in ms}, noise


def turns_text(what, rounds, noise):
    """Sentences for READMEs on how compare() came to its numbers. `what` says who took turns."""
    return (f"In each of {rounds} rounds {what} take turns. The milliseconds are those of the fastest round. "
            "The ratio to the first row is the median over rounds. "
            f"Ratios that are less than {noise:.0%} apart say nothing.")


def table(header, rows):
    """Markdown of a table; cells are formatted by the caller."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


def both(predicted, measured):
    """Both numbers; one number where they are equal."""
    return f"{measured:,}" if predicted == measured else f"{predicted:,} / {measured:,}"


WHOLE = []  # tables of which a README shows some rows


def long_table(title, header, rows, shown, mib=False):
    """A table of the rows whose numbers are in `shown`, with `mib` their bytes in MiB; the whole table goes to
    the page of results."""
    WHOLE.append(f"## {title}\n\n{table(header, rows)}\n")
    text = table(header, [rows[i] for i in shown])
    return re.sub(r"\b\d{1,3}(?:,\d{3})+\b", lambda n: f"{int(n[0].replace(',', '')) / 2**20:.2f}", text) if mib else text


def memory_table(finished, formulas):
    """Predicted and measured peak bytes: formulas maps a category to the text of its formula."""
    rows = []
    for category, formula in formulas.items():
        predicted, measured = (finished.memory(category, w) for w in ("predicted", "measured"))
        rows.append([category, formula, f"{predicted:,}", f"{measured:,}"])
    return table(["category", "formula", "predicted, bytes", "measured, bytes"], rows)


def result(section, shown=None):
    """A section of docs/results/data_parallel.md without its heading: what bench/ has written. With `shown`,
    the machine and those rows of the table."""
    text = (ROOT / "docs/results/data_parallel.md").read_text()
    begin, end = f"<!-- {section}:begin -->\n", f"\n<!-- {section}:end -->"
    lines = text.split(begin)[1].split(end)[0].splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    if shown is not None:
        rows = [line for line in lines if line.startswith("|")]
        machine_line = next(line for line in lines if line.startswith("Machine:"))
        lines = [machine_line, "", *rows[:2], *(rows[2 + i] for i in shown)]
    return "\n".join(lines).strip()


def machine():
    """One line on the machine that is measured, from /proc/cpuinfo."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    first = info.split("\n\n")[0].splitlines()
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first)}
    name = cpu.get("model name", "?")
    # A virtual machine may shorten the name to one that two generations have.
    if "cpu family" in cpu:
        name += f" (family {cpu['cpu family']}, model {cpu['model']})"
    simd = "AVX-512" if " avx512f" in info else "AVX2" if " avx2" in info else "no AVX2"
    return f"{name}, {os.cpu_count()} cores, {simd}"


def commit():
    """The commit that is measured, and whether its programs have been changed since. Changed texts do not count:
    measurements are written into them."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True,
                                        text=True).stdout.strip()
    sources = ["*.cpp", "*.h", "*.cu", "*.cuh", "*CMakeLists.txt", "cmake"]
    changed = git("status", "--porcelain", "--", *sources)
    return git("describe", "--always") + ("-dirty" if changed else "")


def main():
    known = {path.parents[1].name[:2]: path for path in sorted((ROOT / "chapters").glob("[0-9][0-9]_*/proof/measure.py"))}
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        print(f"measure.py: usage: scripts/measure.py NN, where NN is one of {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    found = known[sys.argv[1]]
    if not TEXT.exists():
        subprocess.run(["bash", ROOT / "scripts/text.sh", TEXT], check=True)
    spec = importlib.util.spec_from_file_location("chapter", found)
    chapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chapter)

    readme = found.parents[1] / "README.md"
    origin = f"Measured on: {machine()}; commit {commit()}; `scripts/measure.py {sys.argv[1]}`."
    readme.write_text(replaced(readme.read_text(), "measured", f"{origin}\n\n{chapter.measure()}"))
    if WHOLE:
        page = ROOT / "docs/results" / f"chapter_{sys.argv[1]}.md"
        page.write_text("\n".join([f"# Chapter {sys.argv[1]}: whole tables\n\n{origin}\n", *WHOLE]))


if __name__ == "__main__":
    sys.modules["measure"] = sys.modules["__main__"]  # a chapter imports from here
    main()
