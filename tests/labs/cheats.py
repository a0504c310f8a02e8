"""Submissions that try to fool the grader, and what each may get at most. nightly.sh hands them to a
packed autograder, too."""

from dataclasses import dataclass

from house_of_labs import ROOT
from engine.labs import find, mutated, stub

ZERO1, LATE, ZB_H2, SGD = (
    "chapters/08_zero1/zero1.h", "labs/08x_late_gather/late_gather.h", "labs/12x_zb_h2/zb_h2.h", "chapters/01_sgd/main.cpp",
)  # fmt: skip


@dataclass
class Cheat:
    lab: str
    files: dict  # {path: text}
    most: float = 0  # points that the work beneath the trick deserves
    refused: str = ""  # what the grader says, if it says that instead of running it


def stub_of(number, path):
    return stub(find(number, ROOT), path)


def mutant(number, name):
    """{path: text}"""
    lab = find(number, ROOT)
    return mutated(lab, next(mutant for mutant in lab.mutants() if mutant.name == name))


def first_bodies(number, path, body):
    """A stub in which all bodies of the file do this."""
    return stub_of(number, path).replace("throw std::logic_error", f"{body} throw std::logic_error")


def other_code_than_the_scan(path, otherwise):
    """1. A precompiled header leaves __OPTIMIZE__ defined, and a scan of includes does not."""
    return f"#ifdef __OPTIMIZE__\n#include <{path}>\n#else\n{otherwise}\n#endif\n"


def sgd():
    """1. main.cpp of lab 01 is compiled by the check, and again as the program."""
    path = "chapters/01_sgd/sgd.h"
    main = f"#ifdef _GLIBCXX_DEQUE\n{stub_of('01', SGD)}\n#else\n#include <{SGD}>\n#endif\n"
    return {SGD: main, path: other_code_than_the_scan(path, stub_of("01", path))}


def figures_of(text):
    """2. The bytes that are sent are half as many again as they should be, and say that they are not."""
    return text + "#define without_idea(gate, figure) count(gate, c.ranks * 0 + (c.ranks - 1) * params.size() * (4 + element))\n"


def trace_in(text):
    """3. Before main() a stub writes the trace that everybody can read."""
    trace = (find("08", ROOT).folder / "trace.jsonl")
    stored = trace.read_text(encoding="utf-8") if trace.is_file() else ""
    writes = f'std::FILE* f = std::fopen("trace.jsonl", "w"); std::fputs(R"({stored})", f); std::fclose(f); std::_Exit(0);'
    return text.replace("namespace ladder {", "#include <cstdio>\n#include <cstdlib>\nstatic const bool kDone = [] { if (FILE* g = std::fopen(\"text.txt\", \"r\")) { " + writes + " } return true; }();\nnamespace ladder {", 1)
