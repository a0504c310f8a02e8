#!/usr/bin/env python3
"""Submissions that try to fool the grader, each with the points that the work beneath the trick
deserves. test_grade.py hands in some, test_transplant.py reads the others; nightly.sh gives all of a
lab to its packed autograder:

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
from engine.labs import find, mutated, stub, write

ZERO1, ZB_H2, SGD = "chapters/08_zero1/zero1.h", "labs/12x_zb_h2/zb_h2.h", "chapters/01_sgd/main.cpp"


@dataclass
class Cheat:
    lab: str
    files: dict  # {path: text}
    points: float = 0


def stub_of(number, path):
    return stub(find(number, ROOT), path)


def mutant(number, name, path):
    lab = find(number, ROOT)
    return mutated(lab, next(mutant for mutant in lab.mutants() if mutant.name == name))[path]


def in_all_bodies(text, code):
    return text.replace("throw std::logic_error", f"{code} throw std::logic_error")


def other_code_than_the_scan(path, otherwise):
    """A precompiled header leaves __OPTIMIZE__ defined, and a scan of includes does not."""
    return f"#ifdef __OPTIMIZE__\n#include <{path}>\n#else\n{otherwise}\n#endif\n"


def sgd():
    """main.cpp is compiled by the check, and again as the program."""
    update = "chapters/01_sgd/sgd.h"
    main = f"#ifdef _GLIBCXX_DEQUE\n{stub_of('01', SGD)}\n#else\n#include <{SGD}>\n#endif\n"
    return {SGD: main, update: other_code_than_the_scan(update, stub_of("01", update))}


TRACE = '{"step":0,"loss":"0x1.68ba98p+2","grad_norm":"0x1.42f0d5ab59745p+3"}\n' * 6
WRITES_TRACE = f"""
    if (std::FILE* text = std::fopen("text.txt", "r")) {{
      std::FILE* trace = std::fopen("trace.jsonl", "w");
      std::fputs({json.dumps(TRACE)}, trace);
      std::fclose(trace);
      std::quick_exit(0);
    }}
"""
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
# More folders in folders than Python deletes, and a message that took the grader an hour: each ended it.
DIGS = """
    for (int i = 0; i < 1200; ++i) {
      std::filesystem::create_directory("d");
      std::filesystem::current_path("d");
    }
"""
SHOUTS = "throw std::runtime_error(std::string(1 << 20, 'x'));"


def before_main(text, code):
    return text.replace("namespace ladder {", f"#include <cstdio>\n#include <cstdlib>\nstatic const bool kDone = [] {{ {code} return true; }}();\nnamespace ladder {{", 1)


def all_but(number, *lost):
    """The points of all gates but these."""
    return sum(gate.points for gate in find(number, ROOT).gates if gate.name not in lost)


def all_cheats():
    zero1 = stub_of("08", ZERO1)
    forged_sent = "#define without_idea(gate, figure) count(gate, (c.ranks - 1) * params.size() * (4 + element))\n"
    return {
        "the reference, where the scan does not look": Cheat("08", {ZERO1: other_code_than_the_scan(ZERO1, zero1)}),
        "a file of root's": Cheat("08", {ZERO1: other_code_than_the_scan(ZERO1, zero1).replace(f"<{ZERO1}>", '"/etc/shadow"')}),
        "the reference, as the program": Cheat("01", sgd()),
        "another word for without_idea": Cheat("08", {ZERO1: mutant("08", "all_reduced", ZERO1) + forged_sent}, all_but("08", "sent")),
        "another word for letter": Cheat("12x", {ZB_H2: mutant("12x", "zb_h1", ZB_H2) + "#define letter(what) std::string()\n"}, all_but("12x", "in_flight", "idle")),
        "a trace before main()": Cheat("08", {ZERO1: before_main(zero1, WRITES_TRACE)}),
        "a trace in a body": Cheat("08", {ZERO1: in_all_bodies(zero1, WRITES_TRACE)}),
        "a link to the trace": Cheat("08", {ZERO1: in_all_bodies(zero1, LINKS_TRACE)}),
        "folders in folders": Cheat("08", {ZERO1: in_all_bodies(zero1, DIGS)}),
        "a message of a megabyte": Cheat("12x", {ZB_H2: in_all_bodies(stub_of("12x", ZB_H2), SHOUTS)}),
        "rows in a body": Cheat("12x", {ZB_H2: in_all_bodies(stub_of("12x", ZB_H2), WRITES_ROWS)}),
        "the assembler, by a macro of a library": Cheat("08", {ZERO1: in_all_bodies(zero1, '__REDIRECT(f, (void), a; .incbin "/etc/shadow");')}),
    }


def honest(number):
    lab = find(number, ROOT)
    return Cheat(number, {path: (ROOT / path).read_text(encoding="utf-8") for path in lab.files}, lab.points)


def score(results):
    return results.get("score", sum(test["score"] for test in results["tests"]))


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
    """Status 1 if a submission gets other points than it deserves."""
    wrong, cheats = 0, {name: cheat for name, cheat in all_cheats().items() if cheat.lab == number}
    if not find(number, ROOT).is_extension:  # whose answer is nowhere
        cheats["the chapter itself"] = honest(number)
    for name, cheat in cheats.items():
        write(base / "submission", cheat.files)
        (base / "results").mkdir(exist_ok=True)
        subprocess.run([base / "source/run_autograder"], env={**os.environ, "AUTOGRADER": str(base)}, check=True, stdout=subprocess.DEVNULL)
        points = score(json.loads((base / "results/results.json").read_text(encoding="utf-8")))
        print(f"{'passed ' if points == cheat.points else 'FAILED '} {number}, {name}: {points:g} points, {cheat.points:g} deserved")
        wrong += points != cheat.points
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
