"""Compares what a student's program has measured with what the reference has, and gives points.

Bits first: a figure counts only in cases whose bits are right. For bits credit is the share of rows
that are equal. A figure has all points if it is the reference's; otherwise at most half of them, for
the share of the way from "without the idea" to the reference. Fewer than the reference is wrong, too,
where it means that something was lost.
"""

import json
import re
import struct
from dataclasses import dataclass, field

BITS = ("f32", "bf16", "f16", "text")
MOST_THROWN = 2000  # characters of a message that are kept: a program may throw a megabyte


@dataclass
class Result:
    """The result of one gate: its points, and the row that shows most."""

    gate: object
    share: float  # of its points
    case: str = ""
    without: str = "-"
    yours: str = ""
    reference: str = ""
    wrong: int = 0  # rows
    faults: list = field(default_factory=list)  # results of the rows that are wrong
    rows: int = 1
    limited: bool = False  # all that is wrong with it is another gate's
    mark: str = ""  # of what is wrong: the same for the same fault on the same seeds

    @property
    def passed(self):
        return self.share == 1

    @property
    def points(self):
        return round(self.gate.points * self.share, 2)


@dataclass
class Sheet:
    """The rows of one run of a check."""

    values: dict  # {(case, gate, place): (kind, value)}
    wanted: dict  # the same: what the check says must come out, where no reference is in the tree
    without: dict  # {(case, gate): figure}
    threw: dict  # {case: message}
    begun: list  # cases


def sheet_of(outcome):
    sheet = Sheet({}, {}, {}, {}, [])
    for case, gate, kind, value in outcome.rows:
        name, _, place = gate.partition("/")
        if kind == "begin":
            sheet.begun.append(case)
        elif kind == "threw":
            sheet.threw[case] = value[:MOST_THROWN]
        elif kind == "without":
            sheet.without[case, name] = int(value)
        elif kind in ("returned", "end"):
            pass
        else:
            rows = sheet.wanted if name.startswith("=") else sheet.values
            rows[case, name.removeprefix("="), place] = (kind, value)
    return sheet


def judge(gates, yours, reference):
    """One Result for each gate; without those of kind "trace".
    @param yours,reference Outcome of the same seed"""
    mine, right = sheet_of(yours), sheet_of(reference)
    right.values = right.wanted or right.values  # of an extension only the check knows what is right
    ended = yours.ended
    if left_early(yours):
        mine.values, ended = {}, f"{ended or 'ended'} before its check did, so that nothing counts"
    judged = {}  # of each gate, by name, the result of each row
    for gate in [gate for gate in gates if gate.kind != "trace"]:
        rows = {key: row for key, row in right.values.items() if key[1] == gate.name}
        if not rows:
            raise ValueError(f"the reference has no rows for the gate {gate.name}: {reference.ended} {reference.printed}")
        judged[gate.name] = {key: judge_row(gate, key, row, mine, right, ended) for key, row in rows.items()}
    for gate in gates:
        if gate.with_gate:
            limit(judged[gate.name], judged[gate.with_gate], gate.with_gate)
    return [summary(rows) for rows in judged.values()]


def left_early(outcome):
    """Whether a program has ended itself, as by exit(), before its last row. One that was ended has what it had measured."""
    by_itself = not outcome.ended or outcome.ended.startswith("ended with status")
    return by_itself and not (outcome.rows and outcome.rows[-1][2] == "end")


def limit(rows, others, name):
    """Limits `rows`: in each case they get at most the share that the rows of another gate get."""
    for (case, _, _), result in rows.items():
        most = min((other.share for (where, _, _), other in others.items() if where == case), default=1)
        if result.share > most:
            result.share, result.limited = most, result.passed
            result.yours += f" (counts as far as {name} does)"


def summary(rows):
    """The result that shows most, with the share of all."""
    worst = min(rows.values(), key=lambda result: result.share)
    wrong = [result for result in rows.values() if not result.passed]
    worst.wrong, worst.rows, worst.faults = len(wrong), len(rows), wrong
    worst.limited = bool(wrong) and all(result.limited for result in wrong)
    parts = {}  # what has points of its own: of a place what stands before the colon
    for (case, _, place), result in rows.items():
        parts.setdefault((case, place.partition(": ")[0]), []).append(result.share)
    worst.share = sum(min(shares) for shares in parts.values()) / len(parts)
    return worst


def judge_row(gate, key, row, mine, right, ended):
    case, name, place = key
    kind, value = row
    where = f"{case}, {place}" if place else case
    result = Result(gate, 0.0, where, reference=brief(kind, value))
    base = right.without.get((case, name))
    if base is not None:
        result.without = f"{base:,}"
    if key not in mine.values:
        result.yours = plain(mine.threw.get(case)) or ended_in(mine, ended) or "not measured: the program had ended"
        return result
    my_kind, my_value = mine.values[key]
    result.yours = brief(my_kind, my_value)
    if gate.kind == "bits":
        result.share = float(row == mine.values[key])
        if not result.passed:
            result.yours, result.reference = difference(mine.values[key], row)
        return result
    if my_kind != kind:
        return result
    if wrong := first_wrong(case, mine, right):
        result.yours += f" (does not count: {wrong} is not right)"
        return result
    result.share = credit(gate, int(my_value), int(value), base)
    return result


def ended_in(mine, ended):
    """How the program ended, and in which case; other cases that lack rows are not to blame."""
    return f"{ended}, in the case {mine.begun[-1]}" if ended and mine.begun else ended


# A match begins where a word does. Tries from each letter of a long word would take minutes.
CHECKED = re.compile(r"(?<!\S)(\S+\.(?:cpp|h|cu):\d+): .+?: (.+)")


def plain(message):
    """A message that was thrown, in simpler words. Of a failed CHECK its text and its place are left, not the
    condition; the message of std::vector::at() is said in plain words."""
    message = message and CHECKED.sub(r"\2 [\1]", message)
    index = re.compile(r"vector::_M_range_check: __n \(which is (\d{1,20})\) >= this->size\(\) \(which is (\d{1,20})\)")
    signed = lambda number: number - (1 << 64) if number >> 63 else number  # noqa: E731
    return message and index.sub(lambda found: f"index {signed(int(found[1]))} of a vector of {found[2]} elements", message)


def first_wrong(case, mine, right):
    """The first gate of a case whose bits are not right."""
    rows = ((key, row) for key, row in right.values.items() if key[0] == case and row[0] in BITS)
    return next((key[1] for key, row in rows if mine.values.get(key) != row), None)


def credit(gate, yours, reference, base):
    if yours == reference:
        return 1.0
    if yours < reference:
        return 0.0 if gate.less_is_wrong else 1.0
    if base is None or base <= reference:
        return 0.0
    return MOST_OF_ANOTHER * max(0.0, 1 - (yours - reference) / (base - reference))


def numbers(kind, value):
    words = [int(value[i : i + 8], 16) for i in range(0, len(value), 8)]
    if kind != "f32":
        words = [word & 0xFFFF for word in words]  # a program may write more bits than it has
    if kind == "f16":
        return [struct.unpack("<e", struct.pack("<H", word))[0] for word in words]
    shift = 16 if kind == "bf16" else 0
    return [struct.unpack("<f", struct.pack("<I", word << shift))[0] for word in words]


def brief(kind, value):
    if kind == "count":
        return f"{int(value):,}"
    if kind == "text":
        return f"{len(figures(value))} figures" if figures(value) else value
    return f"{len(value) // 8:,} numbers"


def figures(text):
    """The words of a text that is a list of figures, too long to be shown; else nothing."""
    words = text.split()
    return words if len(words) > 4 and all(re.fullmatch("[0-9]{1,20}", word) for word in words) else []


def difference(mine, right):
    """(yours, reference) where they differ first."""
    if mine[0] == right[0] == "text" and len(figures(mine[1])) == len(figures(right[1])) > 0:
        pairs = list(zip(figures(mine[1]), figures(right[1])))
        wrong = [i for i, (a, b) in enumerate(pairs) if a != b]
        a, b = pairs[wrong[0]]
        return f"{len(wrong)} of {len(pairs)} differ; [{wrong[0]}] {int(a):,}", f"[{wrong[0]}] {int(b):,}"
    if mine[0] != right[0] or mine[0] == "text" or len(mine[1]) != len(right[1]):
        return brief(*mine), brief(*right)
    a, b = numbers(*mine), numbers(*right)
    cuts = range(0, len(mine[1]), 8)
    wrong = [i // 8 for i in cuts if mine[1][i : i + 8] != right[1][i : i + 8]]
    first = wrong[0]
    return f"{len(wrong):,} of {len(a):,} differ; [{first}] {a[first]:.9g}", f"[{first}] {b[first]:.9g}"


def judge_trace(gate, yours, reference, ended=""):
    """Traces as lists of lines.
    @param ended how the program ended, if not by itself"""
    equal = 0
    while equal < min(len(yours), len(reference)) and yours[equal] == reference[equal]:
        equal += 1
    result = Result(gate, equal / len(reference), "trace", yours=f"{equal} of {len(reference)} lines", reference=f"{len(reference)} lines")
    if len(yours) > len(reference):
        result.share = 0.0
    if not result.passed:
        result.faults = [result]
    if equal < len(yours):
        right = reference[equal] if equal < len(reference) else "no such line"
        result.yours, result.reference = (f"line {equal + 1}: {line}" for line in differing(yours[equal], right))
    elif ended:
        result.yours += f", {ended}"
    return result


def differing(mine, right):
    """Two lines of a trace, each with what is not equal in the other; as they are if one is no line
    of a trace."""
    try:
        a, b = json.loads(mine), json.loads(right)
        shown = ["step", *(key for key in b if key not in ("step", "decimal") and a[key] != b[key])]
        return tuple(", ".join(f"{key} {line['decimal'].get(key, line[key])}" for key in shown) for line in (a, b))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return mine, right


LONGEST_CELL = 60
MOST_OF_ANOTHER = 0.5  # the share of a figure that is not the reference's


def too_long(*texts):
    return max(map(len, texts)) > LONGEST_CELL


def table(results):
    """A row for each gate. What fits no cell, such as an exception, stands below its row."""
    rows = [("gate", "without the idea", "yours", "reference", "points")]
    for r in results:
        mark = "ok " if r.passed else "-> "
        cells = ["see below" if too_long(*texts) else texts[0] for texts in [(r.yours, r.reference), (r.reference,)]]
        rows.append((mark + r.gate.name, r.without, *cells, f"{r.points:g}/{r.gate.points:g}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    shown = lines[:1]
    said = set()  # one exception ends all gates of a case
    for line, r in zip(lines[1:], results):
        shown.append(line)
        if r.passed:
            continue
        more = f" ({r.wrong:,} of {r.rows:,} such comparisons fail)" if r.rows > 1 else ""
        shown.append(f"     {r.gate.what}; in: {r.case}{more}")
        if too_long(r.yours, r.reference):
            shown.append("     yours: " + ("as above" if r.yours in said else r.yours))
            said.add(r.yours)
        if too_long(r.reference):
            shown.append(f"     reference: {r.reference}")
    return "\n".join(shown)
