#!/usr/bin/env python3
"""Submissions that try to fool the grader, each with the points that the work beneath the trick
deserves, and the word that a person is told of. That no other can forge a score is not promised.
test_grade.py hands in some; nightly.sh gives all of a lab to its packed autograder:

  tests/labs/cheats.py PACKED.zip NN     what labs/autograder.sh has made for lab NN
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from house_of_labs import ROOT
from engine import grade
from engine.labs import find, mutated, stub, write

ZERO1, ZB_H2 = "chapters/08_zero1/zero1.h", "labs/12x_zb_h2/zb_h2.h"


@dataclass
class Cheat:
    lab: str
    files: dict  # {path: text}
    shown: str = ""
    points: float = 0


def mutant(number, name, path):
    lab = find(number, ROOT)
    return mutated(lab, next(mutant for mutant in lab.mutants if mutant.name == name))[path]


def in_all_bodies(text, code):
    return text.replace("throw std::logic_error", f"{code} throw std::logic_error")


# From the home of the program to what the reference has written, or to a stored trace.
LINKS_TRACE = f"""
    std::printf("score: 100\\n");
    if (std::FILE* text = std::fopen("text.txt", "r")) {{
      for (const char* to : {{"../../trace/trace.jsonl", "{ROOT}/labs/08_zero1/trace.jsonl"}})
        if (::symlink(to, "trace.jsonl") == 0 && std::rename(to, to) == 0) break;
      std::exit(0);
    }}
    std::exit(0);
"""
# What check.cpp would write for the right lists; before it what is no row, to end the grader.
WRITES_ROWS = r"""
  for (int fd = 3; fd < 20; ++fd)
    if (std::FILE* rows = ::fdopen(fd, "w")) {
      const std::string name = fmt::format("p {}, m {}", p, m);
      std::fputs(fmt::format("{0}\tidle\tcount\tnone\n{0}\tidle\twithout\tmany\n{0}\torder\ttext\tright\n"
                             "{0}\tin_flight\tcount\t{1}\n{0}\tidle\tcount\t0\n",
                             name, p * (2 * p - 1)).c_str(), rows);
      std::fflush(rows);
    }
"""
# Macros of the C library with one brace: the body ends early, and a member begins before main().
HIDES_A_BRACE = """
    pthread_cleanup_push(nullptr, nullptr);
    do { pthread_cleanup_pop(0);
    do { pthread_cleanup_pop(0); } while (0); }
    static inline const bool mine_ = std::puts("mine") > 0;
    void more() { pthread_cleanup_push(nullptr, nullptr); } while (0);
"""

# More folders in folders than Python deletes: it ended the grader once.
DIGS = """
    for (int i = 0; i < 1200; ++i) {
      std::filesystem::create_directory("d");
      std::filesystem::current_path("d");
    }
"""


def all_but(number, *lost):
    """The points of all gates but these."""
    return sum(gate.points for gate in find(number, ROOT).gates if gate.name not in lost)


def all_cheats():
    zero1, zb_h2 = stub(find("08", ROOT), ZERO1), stub(find("12x", ROOT), ZB_H2)
    forged_sent = "#define without_idea(gate, figure) count(gate, (c.ranks - 1) * params.size() * (4 + element))\n"
    last = 'throw std::logic_error("Zero1::wait'
    return {
        "a file of root's": Cheat("08", {ZERO1: in_all_bodies(zero1, '\n#include "/etc/shadow"\n')}, "#"),
        "a file of root's, by the assembler": Cheat("08", {ZERO1: in_all_bodies(zero1, 'asm(".incbin \\"/etc/shadow\\"");')}, "asm"),
        "another word for without_idea": Cheat("08", {ZERO1: mutant("08", "all_reduced", ZERO1) + forged_sent}, points=all_but("08", "sent")),
        "code before main()": Cheat("08", {ZERO1: zero1.replace(last, HIDES_A_BRACE + last)}, "pthread_cleanup_push"),
        "a link to the trace": Cheat("08", {ZERO1: in_all_bodies(zero1, LINKS_TRACE)}, "fopen"),
        "folders in folders": Cheat("08", {ZERO1: in_all_bodies(zero1, DIGS)}),
        "rows in a body": Cheat("12x", {ZB_H2: in_all_bodies(zb_h2, WRITES_ROWS)}, "fdopen"),
    }


def honest(number):
    lab = find(number, ROOT)
    return Cheat(number, {path: (ROOT / path).read_text(encoding="utf-8") for path in lab.files}, points=lab.points)


def is_shown(results, cheat):
    """Whether a person is told of the word, and of none if there is none; most cheats stand in a chapter that was pasted."""
    lines = [line for line in results["extra_data"]["look_at"] if "stands in the tree's own files" not in line]
    return any(cheat.shown in line for line in lines) if cheat.shown else not lines


def set_up(packed, base):
    """As Gradescope does it in /autograder."""
    base.chmod(0o755)
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            Path(archive.extract(entry, base / "source")).chmod(entry.external_attr >> 16 & 0o777 or 0o755)
    subprocess.run(["bash", base / "source/setup.sh"], check=True, stdout=subprocess.DEVNULL)


def main(packed, number):
    with tempfile.TemporaryDirectory() as base:
        set_up(packed, Path(base))
        return graded(Path(base), number)


def graded(base, number):
    """Status 1 if a submission gets other points than it deserves, or nobody is told."""
    wrong, cheats = 0, {name: cheat for name, cheat in all_cheats().items() if cheat.lab == number}
    if not find(number, ROOT).is_extension:  # whose answer is nowhere
        cheats["the chapter itself"] = honest(number)
    for name, cheat in cheats.items():
        write(base / "submission", cheat.files)
        (base / "results").mkdir(exist_ok=True)
        subprocess.run([base / "source/run_autograder"], env={**os.environ, "AUTOGRADER": str(base)}, check=True, stdout=subprocess.DEVNULL)
        results = json.loads((base / "results/results.json").read_text(encoding="utf-8"))
        right = grade.score(results) == cheat.points and is_shown(results, cheat)
        print(f"{'passed ' if right else 'FAILED '} {number}, {name}: {grade.score(results):g} points, {cheat.points:g} deserved")
        wrong += not right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
