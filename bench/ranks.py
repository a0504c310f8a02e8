"""What the measurements of data-parallel training share: starting ranks, taking turns."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "scripts"), str(ROOT / "bench/peers")]

from measure import table  # noqa: E402
from timeline_svg import rows_of  # noqa: E402
from whole_step import random_file  # noqa: E402

RESULTS = ROOT / "docs/results/data_parallel.md"
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
# Open MPI asks whoever is root twice.
MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def environment(**more):
    """Our environment, without OMP_WAIT_POLICY: each program chooses itself how its threads wait."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    return {**env, **MPI_ENV, **more}


def output_of(command, env=None):
    done = subprocess.run([str(part) for part in command], env=env or environment(),
                          capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                         f"{done.stderr}")
    return done.stdout


def ladder(program, flags, launch=()):
    """(--report, rows of the --timeline) of one run: {row: [(name, begin ms, end ms)]}, in order
    of time. launch: mpirun with its flags, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report, timeline = Path(folder) / "report.json", Path(folder) / "timeline.json"
        output_of([*launch, program, *flags, "--quiet", f"--report={report}",
                   f"--timeline={timeline}"])
        return json.loads(report.read_text()), rows_of(timeline)


def time_in(rows, chosen, rank=0):
    """Milliseconds a step that a rank's own row spends in spans whose name is `chosen`; the first
    step is left out."""
    own = rows[f"rank {rank}"]
    steps = [span for span in own if span[0] == "step"][1:]
    total = sum(end - begin for name, begin, end in own if begin >= steps[0][1] and chosen(name))
    return total / len(steps)


def in_turns(rounds, runs):
    """{name: [result of each round]} of {name: function}; a slow minute hits all of them."""
    results = {name: [] for name in runs}
    for number in range(1, rounds + 1):
        for name, run in runs.items():
            results[name].append(run())
            print(f"round {number}  {name:36}{results[name][-1]:9.1f} ms a step", flush=True)
    return results


def medians(results):
    return {name: statistics.median(values) for name, values in results.items()}


def ratio(results, slow, fast):
    """Median over rounds: both had the machine at about the same time."""
    return statistics.median(a / b for a, b in zip(results[slow], results[fast]))


def spread(values):
    return f"{min(values):.0f} to {max(values):.0f}"


def data_file(folder, batch, seq_len):
    """Random bytes: time does not depend on them, and validation at the end stays short."""
    path = Path(folder) / "random"
    random_file(path, batch, seq_len)
    return path
