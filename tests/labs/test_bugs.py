#!/usr/bin/env python3
"""Find the bug, without a compiler: what is drawn, what is shown, and who is right."""

import contextlib
import io
import tempfile
import unittest
import unittest.mock

import house_of_labs  # noqa: F401

import lab as lab_py
from engine import bugs, gates
from engine.labs import all_labs, find

MANY = range(1, 200)


class Bugs(unittest.TestCase):
    def run_lab(self, *words, results=()):
        """(status, what is printed)"""
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            with unittest.mock.patch.object(bugs.judge, "check", return_value=(list(results), "", 1)), unittest.mock.patch.object(lab_py.Build, "prepare"):
                status = lab_py.main(["--work", work, "--build", work, "bug", *words])
        return status, out.getvalue()

    def test_every_fault_is_drawn_and_none_twice_in_a_row_and_they_stand_in_no_order(self):
        for lab in all_labs():
            faults, drawn = lab.mutants, [bugs.draw(lab, number) for number in MANY]
            names = [fault.name for fault, _ in drawn]
            self.assertEqual(set(names[: len(faults)]), {fault.name for fault in faults}, lab.name)
            self.assertTrue(all(one != other for one, other in zip(names, names[1:])), lab.name)
            self.assertEqual({listed.index(fault) for fault, listed in drawn}, set(range(len(faults))), lab.name)
            self.assertEqual(len({fault.symptom for fault in faults}), len(faults), lab.name)

    def test_one_choice_is_right(self):
        for number in MANY[:5]:
            said = [self.run_lab("20", str(number), "--is", str(k))[0] for k in range(1, len(find("20").mutants) + 1)]
            self.assertEqual(sorted(said), [0] + [1] * (len(said) - 1))

    def test_no_code_is_shown_before_it_is_named(self):
        lab = find("20")
        results = [gates.Result(gate, 0.0, "a case", yours="1", reference="2") for gate in lab.gates]
        for result in results:
            result.faults = [result] * 9
        for number in MANY[:12]:
            status, shown = self.run_lab("20", str(number), results=results)
            self.assertEqual(status, 0)
            self.assertIn("tokens: a case: 1; right is 2", shown)
            self.assertIn("tokens: and 3 rows more", shown)
            for mutant in lab.mutants:
                self.assertIn(mutant.symptom, shown)
                self.assertNotIn(mutant.name, shown)
                for line in (line.strip() for change in mutant.changes for line in (change["find"] + change["put"]).splitlines()):
                    self.assertFalse(len(line) > 10 and line in shown, line)

    def test_an_extension_keeps_its_answer(self):
        lab = find("11x")
        _, listed = bugs.draw(lab, 1)
        right = [mutant.name for mutant in listed].index(bugs.draw(lab, 1)[0].name) + 1
        self.assertEqual(self.run_lab("11x", "1", "--is", str(right))[1].count("\n"), 1)

    def test_what_is_no_number_of_a_bug(self):
        for words in [["20", "0"], ["20", "x"], ["20", "1", "--is", "99"], ["77", "1"], ["20"]]:
            status, said = self.run_lab(*words)
            self.assertEqual((status, said.count("\n")), (2, 1), words)


if __name__ == "__main__":
    unittest.main()
