#!/usr/bin/env python3
"""A folder of submissions, graded: what is graded again, who is named, and by which error. Without a compiler."""

import contextlib
import csv
import io
import re
import unittest
import unittest.mock
from pathlib import Path

from house_of_labs import ROOT, Tree

import lab as lab_py
from engine import classroom, gates, grade, sandbox, transplant
from engine.labs import find, mutated, stub

FILE = "chapters/08_zero1/zero1.h"


class Class(Tree):
    def setUp(self):
        super().setUp()
        self.lab, self.graded = find("08", self.root), []
        self.texts = {mutant.name: mutated(self.lab, mutant)[FILE] for mutant in self.lab.mutants}
        lost, whole = self.texts["bucket_lost"], (self.root / FILE).read_text(encoding="utf-8")
        for name, text in {"ann": whole, "bob": lost, "cy": "oops", "dot": lost + "// mine\n", "eve": stub(self.lab, FILE)}.items():
            self.hand_in(name, text)

    def hand_in(self, name, text):
        (self.root / "in" / name).mkdir(parents=True, exist_ok=True)
        (self.root / "in" / name / "zero1.h").write_text(text, encoding="utf-8")

    def command(self, words, **_):
        """What `lab.py grade` does, with gates that fail as in the mutant whose text it is."""
        submission, results = (Path(words[words.index(flag) + 1]) for flag in ("--submission", "--results"))
        self.graded.append((submission.name, words[words.index("--seed") + 1]))
        text = next(submission.rglob("zero1.h")).read_text(encoding="utf-8")
        failed = next((mutant for mutant in self.lab.mutants if self.texts[mutant.name] in text), None)

        def run_all(*_):
            fails = [failed.gate] if failed else [gate.name for gate in self.lab.gates] if "is not written yet" in text else []
            return [gates.Result(gate, 0.5, mark=f"{failed and failed.name}") if gate.name in fails else gates.Result(gate, 1) for gate in self.lab.gates]

        if submission.name == self.broken:
            return unittest.mock.Mock(returncode=2, stderr="lab.py: no room\n")
        with unittest.mock.patch.object(grade, "run_all", run_all):
            grade.grade(self.lab, unittest.mock.Mock(notes=[]), submission, results, int(words[words.index("--seed") + 1]))
        return unittest.mock.Mock(returncode=0, stderr="")

    def run_class(self, broken="", *more):
        self.broken, self.graded = broken, []
        words = ["class", "08", "--submissions", str(self.root / "in"), "--results", str(self.root / "round"), "--jobs", "1", *more]
        with unittest.mock.patch.object(classroom, "called", self.command), unittest.mock.patch.object(lab_py, "Build"), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            status = lab_py.main(words)
        return status, out.getvalue()

    def rows(self):
        with (self.root / "round/grades.csv").open(encoding="utf-8", newline="") as file:
            return {row["student"]: row for row in csv.DictReader(file)}

    def test_a_round(self):
        status, told = self.run_class(broken="dot")
        self.assertEqual((status, told.splitlines()[-1]), (1, "not graded: dot: lab.py: no room"))
        rows, seed = self.rows(), self.graded[0][1]
        self.assertEqual([rows[name]["points"] for name in sorted(rows)], ["100", "85", "0", "", "50"])
        self.assertEqual([rows[name]["errors"] for name in sorted(rows)], ["", "bucket_lost", "", "", ""])
        self.assertEqual([rows[name]["likeness"] for name in ("ann", "cy", "eve")], ["1.00", "", "0.00"])
        page = (self.root / "round/errors.md").read_text(encoding="utf-8")
        for said in ["5 submissions, 1 with all points", "| `bucket_lost` | sums | ", "| bob |\n", "- cy: zero1.h: the function that", "- dot: lab.py: no room\n", "- weights: eve\n", "- ann: 100% of what is taken"]:
            self.assertIn(said, page)
        self.assertNotIn("- sums: bob", page)
        # It goes on where it has stopped, with the same seed; what is handed in anew is graded anew.
        self.hand_in("bob", stub(self.lab, FILE))
        status, told = self.run_class()
        self.assertEqual((status, self.graded), (0, [("bob", seed), ("dot", seed)]))
        self.assertEqual((self.rows()["dot"]["errors"], self.rows()["bob"]["errors"]), ("bucket_lost", ""))

    def test_a_check_that_was_mended_grades_all_again(self):
        seen = {grade.digest(self.lab, self.root / "in/ann")}
        for name in ["labs/check.h", "labs/check.cpp", "labs/ranks.h", "labs/08_zero1/check.cpp"]:
            self.replace(name, "#include", "\n#include")
            seen.add(grade.digest(self.lab, self.root / "in/ann"))
        self.assertEqual(len(seen), 5)

    def test_what_could_not_be_judged_is_tried_again(self):
        with unittest.mock.patch.object(grade, "taken", side_effect=ValueError), contextlib.redirect_stderr(io.StringIO()):
            status, told = self.run_class()
        self.assertEqual((status, told.count("not graded: ")), (1, 5))
        self.assertEqual(self.run_class()[0], 0)

    def test_what_is_refused(self):
        self.run_class("", "--seed", "5")
        for more in [["--seed", "6"], ["--jobs", "0"], ["--submissions", "/nonexistent"], ["--results", str(self.root / "in")]]:
            status, told = self.run_class("", *more)
            self.assertEqual((status, told.count("\n")), (2, 1), more)
        (self.root / "in/notes.zip").write_text("")
        self.assertIn("legal is a folder for each student", self.run_class()[1])


class Likeness(unittest.TestCase):
    def test_a_pasted_chapter(self):
        """It stays one with other names, comments and blanks; a stub is none, and neither is an extension."""
        lab = find("08", ROOT)
        text = (ROOT / FILE).read_text(encoding="utf-8")
        other = re.sub(r"\b(section|weights|chunks)\b(?!\()", r"my_\1", text).replace("    ", "  // so\n")
        self.assertEqual(transplant.likeness(lab, {FILE: text}), 1)
        self.assertLess(transplant.likeness(lab, {FILE: stub(lab, FILE)}), 0.1)
        for mutant in lab.mutants:
            self.assertGreater(transplant.likeness(lab, mutated(lab, mutant)), grade.PASTED)
        late = find("08x", ROOT)
        self.assertIsNone(transplant.likeness(late, {path: stub(late, path) for path in late.files}))


class Users(unittest.TestCase):
    @unittest.skipUnless(sandbox.can_isolate(), "not root")
    def test_two_gradings_have_two_users(self):
        self.assertTrue(sandbox.reserve(1))
        self.assertFalse(sandbox.reserve(1))


if __name__ == "__main__":
    unittest.main()
