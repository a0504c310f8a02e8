"""What a handout says must hold, and the mutants that break it.

They are the sentences in the last column of the tables of "What to write", but those in parentheses,
which only help; and the rows of "What is counted". A mutant that fails at a gate breaks what the row of this gate says, and so does
one whose `also` names the gate: it fails at another one first. Which sentence of "What to write" it
breaks the mutant says itself: `breaks` in its file quotes the sentence, or as much of it as stands in
no other.
"""

import re
from dataclasses import dataclass, field


@dataclass
class Must:
    sentence: str
    gate: str = ""  # whose row it is; else a mutant quotes it
    mutants: list = field(default_factory=list)


def section(text, name):
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def rows(text, head):
    """The rows of all tables whose last column has this head: lists of cells."""
    found, taken = [], False
    lines = text.splitlines()
    rule = re.compile(r"\|[-: |]+\|")  # below a head
    for line, after in zip(lines, [*lines[1:], ""]):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if rule.fullmatch(after):
            taken = cells[-1] == head
        elif line.startswith("|") and not rule.fullmatch(line) and taken:
            found.append(cells)
    return found


def sentences(cell):
    cell = re.sub(r"(?:^|(?<=[.;] ))\((?:[^()]|\([^()]*\))*\) ?", "", cell)
    return [sentence.rstrip(".") for sentence in re.split(r"(?<=[^.][.;]) +", cell) if sentence]


def musts(lab):
    """A list of Must. @throws ValueError of a mutant whose quotation is in no sentence, or in two"""
    text = (lab.folder / "README.md").read_text(encoding="utf-8")
    found = [Must(sentence) for row in rows(section(text, "What to write"), "what it does") for sentence in sentences(row[-1])]
    for mutant in lab.mutants:
        for quoted in mutant.breaks:
            where = [must for must in found if quoted in must.sentence]
            if len(where) != 1:
                raise ValueError(f"{lab.name}, mutant {mutant.name}: in {len(where)} sentences of the handout: {quoted}")
            where[0].mutants.append(mutant)
    traces = [gate.name for gate in lab.gates if gate.kind == "trace"]  # of the program: all that is broken shows there
    for name, _, sentence in rows(section(text, "What is counted"), "what must hold"):
        if name not in traces:
            found.append(Must(sentence, name, [mutant for mutant in lab.mutants if name in (mutant.gate, *mutant.also)]))
    return found


def table(lab):
    """The lines that say of each sentence which mutants break it, and at which gate each of them fails."""
    for must in musts(lab):
        yield f"{lab.number}  {must.gate + ': ' if must.gate else ''}{must.sentence}"
        yield from (f"      {mutant.gate:10} {mutant.name}" for mutant in must.mutants or [])
        if not must.mutants:
            yield "      no mutant"
