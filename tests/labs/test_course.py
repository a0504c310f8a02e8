#!/usr/bin/env python3
"""docs/course.md says what the labs and chapters say: minutes, points, mutants, papers."""

import math
import re
import unittest

from house_of_labs import ROOT
from engine.labs import all_labs

COURSE = (ROOT / "docs/course.md").read_text(encoding="utf-8")
LABS = {lab.number: lab for lab in all_labs()}


def rows(section):
    """The table of a section: lists of cells, without its head."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", COURSE, re.MULTILINE | re.DOTALL)[1]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return table[2:]


def minutes(labs):
    return sum(LABS[number].minutes for number in labs.split())


class Course(unittest.TestCase):
    def test_weeks(self):
        for path in ["Ten weeks", "LLaMA and experts", "Systems"]:
            for week, chapters, labs, written, hours, _ in rows(path):
                self.assertEqual(int(written), minutes(labs), f"{path}, {week}")
                self.assertEqual(float(hours), math.ceil((90 + 120 + int(written)) / 30) / 2, f"{path}, {week}")
                for chapter in chapters.split():
                    self.assertEqual(len(list(ROOT.glob(f"chapters/{chapter}_*"))), 1, f"{path}, {week}")

    def test_paths(self):
        for path, _, labs, written, points in rows("Three paths"):
            self.assertEqual(int(written), minutes(labs), path)
            self.assertEqual(int(points), sum(LABS[number].points for number in labs.split()), path)

    def test_the_longest_path_has_all(self):
        weeks, path = rows("Ten weeks"), rows("Three paths")[-1]
        for column, of_path in [(1, 1), (2, 2)]:
            self.assertEqual(" ".join(row[column] for row in weeks), path[of_path])

    def test_every_lab_with_its_gates(self):
        wanted = [
            [f"[{lab.number}](../labs/{lab.name}/README.md)", str(lab.minutes), ", ".join(f"{gate.name} {gate.points:g}" for gate in lab.gates)]
            for lab in LABS.values()
        ]  # fmt: skip
        self.assertEqual(rows("Labs, minutes, points"), wanted)

    def test_mutants(self):
        shown = {}
        for number, name, gate, _ in rows("Common errors"):
            gates = {mutant.name: mutant.gate for mutant in LABS[number].mutants}
            self.assertEqual(gates.get(name.strip("`")), gate, f"{number}: {name}")
            shown.setdefault(number, []).append(name)
        self.assertEqual(shown.keys(), LABS.keys())

    def test_a_syllabus_names_what_is_there(self):
        """Chapters and labs of its tables; the same column has both kinds of text: numbers count."""
        text = (ROOT / "docs/syllabus.md").read_text(encoding="utf-8")
        tables = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
        for cells in tables:
            for number in re.findall(r"\b\d\dx?\b", re.sub(r"\(.*?\)", "", cells[3])):
                self.assertIn(number, LABS, cells)
            for number in re.findall(r"\b\d\d\b", re.sub(r"\(.*?\)", "", cells[2])):
                self.assertEqual(len(list(ROOT.glob(f"chapters/{number}_*"))), 1, cells)

    def test_papers_are_those_of_the_chapters(self):
        for chapters, papers in rows("Reading list"):
            texts = [path.read_text(encoding="utf-8") for number in chapters.split() for path in ROOT.glob(f"chapters/{number}_*/README.md")]
            self.assertTrue(texts, chapters)
            for paper in re.findall(r"\d{4}\.\d{4,5}", papers):
                self.assertTrue(any(paper in text for text in texts), f"{chapters}: {paper}")


if __name__ == "__main__":
    unittest.main()
