#!/usr/bin/env python3
"""Labs without a compiler: stubs, what leaks, a student's files, answers, points."""

import contextlib
import io
import subprocess
import tomllib
import unittest
import unittest.mock

from house_of_labs import ROOT, Tree

import lab as lab_py
import update
from engine import answers, gates
from engine.desk import Desk, pairs
from engine.labs import Gate, Refused, all_labs, bodies, find, leaks, mutated, reading, removed_lines, stub
from engine.sandbox import Outcome
from engine.selftest import first_failure


class Labs(unittest.TestCase):
    def test_no_line_that_was_removed_is_in_a_handout(self):
        for lab in all_labs():
            self.assertEqual(leaks(lab), [], lab.name)

    def test_a_handout_says_which_pages_are_closed(self):
        """Pages that show two lines or more of what the stub has lost, but READMEs of this chapter and
        of later ones, which one sentence closes."""
        pages = [path for folder in ("chapters", "docs") for path in (ROOT / folder).rglob("*.md")]
        for lab in all_labs():
            handout = (lab.folder / "README.md").read_text(encoding="utf-8")
            if lab.is_extension:
                self.assertIn("Nothing is closed.", handout, lab.name)
                continue
            for what in ["this chapter and of later ones in `chapters/`", f"`work/{lab.number}/README.md` is open", "`labs/*/mutants/`", "`--no-diff`"]:
                self.assertIn(what, handout, lab.name)
            lines = removed_lines(lab)
            for page in pages:
                later = page.parent.parent.name == "chapters" and page.parent.name >= lab.name
                if not later and sum(line in page.read_text(encoding="utf-8") for line in lines) > 1:
                    self.assertIn(f"`{page.relative_to(ROOT)}`", handout, lab.name)

    def test_mutants_change_what_is_there(self):
        for lab in all_labs():
            for mutant in lab.mutants():
                self.assertNotEqual(mutated(lab, mutant), {}, mutant.name)
                self.assertIn(mutant.gate, [gate.name for gate in lab.gates], f"{lab.name}: {mutant.name}")

    def test_a_lab_has_a_hundred_points_hints_and_a_handout(self):
        for lab in all_labs():
            self.assertEqual(lab.points, 100, lab.name)
            self.assertGreaterEqual(len(lab.hints), 2, lab.name)
            handout = (lab.folder / "README.md").read_text(encoding="utf-8")
            for section in ["## What to read", "## What to write", "## What is counted", "## What to hand in"]:
                self.assertIn(section, handout, lab.name)
            for gate in lab.gates:
                self.assertIn(f"| {gate.name} | {gate.points:g} |", handout, lab.name)

    def test_a_stub_throws_in_each_function_and_keeps_the_rest(self):
        for lab in all_labs():
            for path in lab.files:
                text = stub(lab, path)
                self.assertIn(f'"{lab.files[path][0].rpartition("::")[2]} is not written yet"' if lab.is_extension else "", text)
                for name in bodies(lab, path):
                    self.assertIn(f'"{name} is not written yet"', text)


class Planted(Tree):
    def test_a_line_that_leaks(self):
        line = "      reducer.all_gather(section, chunks_of(section, reducer));\n"
        self.replace("labs/08_zero1/README.md", "## What to hand in", line + "## What to hand in")
        self.assertEqual(len(leaks(find("08", self.root))), 1)

    def test_a_diff_in_the_chapters_text_would_leak(self):
        lab = find("08", self.root)
        self.assertNotIn("+  Zero1 zero1{", reading(lab))
        self.replace("chapters/08_zero1/README.md", "## Exercises", "`start(grads, 0); // no`\nfor (Pending& pending : pending_) pending.wait();\n## Exercises")
        self.assertEqual(len(leaks(lab)), 1)

    def test_a_changed_chapter_is_refused(self):
        self.replace("chapters/08_zero1/zero1.h", "#pragma once", "#pragma once\n")
        with self.assertRaisesRegex(Refused, "is not the file that labs/ranges.json knows"):
            stub(find("08", self.root), "chapters/08_zero1/zero1.h")

    def test_a_renamed_function(self):
        cindex = update.libclang()
        if cindex is None:
            self.skipTest("no libclang")
        self.replace("chapters/08_zero1/zero1.h", "void finish(", "void finished(")
        with self.assertRaisesRegex(Refused, "zero1.h has 0 functions Zero1::finish"):
            update.ranges(cindex, self.root, [find("08", self.root)])

    def test_a_mutant_that_no_longer_fits(self):
        lab = find("08", self.root)
        self.replace("chapters/08_zero1/zero1.h", "start(grads, 0);", "start(grads, int64_t{0});")
        with self.assertRaisesRegex(Refused, "mutant bucket_lost: not once in"):
            for mutant in lab.mutants():
                mutated(lab, mutant)

    def test_a_students_file_stays(self):
        lab, desk = find("08", self.root), Desk(self.root)
        mine = desk.start(lab)[0]
        mine.write_text("mine", encoding="utf-8")
        with self.assertRaisesRegex(Refused, "is there already and stays as it is"):
            desk.start(lab)
        self.assertEqual(mine.read_text(encoding="utf-8"), "mine")
        aside = desk.reset(lab) + desk.reset(lab)
        self.assertEqual(aside[0].read_text(encoding="utf-8"), "mine")
        self.assertEqual(len(set(aside)), 2)

    def test_functions_stand_beside_each_other(self):
        lab, desk = find("08", self.root), Desk(self.root)
        mine = desk.start(lab)[0]
        shown = {name: (ours.count("\n"), theirs.count("\n")) for name, ours, theirs in pairs(lab, desk)}
        self.assertEqual(shown.keys(), set(lab.files["chapters/08_zero1/zero1.h"]))
        self.assertEqual(shown["Zero1::finish"], (2, 6))
        mine.write_text("mine", encoding="utf-8")
        self.assertEqual({ours for _, ours, _ in pairs(lab, desk)}, {None})

    def test_a_broken_state_is_told(self):
        desk = Desk(self.root)
        desk.note(find("08", self.root), hints=1)
        desk.file.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(Refused, "is no JSON"):
            desk.state(find("08", self.root))


class WhatIsShown(Tree):
    def checked(self, desk, share, printed=""):
        """What check_once() prints of a lab whose gates all have this share."""
        lab = find("08", self.root)
        results = [gates.Result(gate, share) for gate in lab.gates]
        with unittest.mock.patch.object(lab_py.judge, "check", return_value=(results, printed, 1)), contextlib.redirect_stdout(io.StringIO()) as out:
            lab_py.check_once(lab, desk, None, True, 1)
        return out.getvalue()

    def test_a_pass_is_kept(self):
        desk = Desk(self.root)
        desk.start(find("08", self.root))
        for share, passed in [(0, False), (1, True), (0, True)]:
            self.checked(desk, share)
            self.assertEqual(desk.state(find("08", self.root))["passed"], passed)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            lab_py.list_labs(None, desk)
        self.assertRegex(out.getvalue(), r"(?m)^08 +60 min  passed ")

    def test_an_error_is_shown_without_what_was_printed_before(self):
        desk = Desk(self.root)
        desk.start(find("08", self.root))
        shown = self.checked(desk, 0, "params  1 MB\ninternal error: rank 1: no sum\nmore\n")
        self.assertIn("your program printed:\n  internal error: rank 1: no sum\n  more\n", shown)


class CommandLine(unittest.TestCase):
    def refused(self, *words):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(lab_py.main(["--work", "/nonexistent/work", *words]), 2)
        self.assertEqual(err.getvalue().count("\n"), 1)
        return err.getvalue()

    def test_bad_input_is_one_line(self):
        self.assertIn("no lab 77; there are", self.refused("check", "77"))
        self.assertIn("lab.py new 08 writes it", self.refused("check", "08"))
        self.assertIn("invalid choice", self.refused("chek", "08"))
        self.assertIn("with --yes it does", self.refused("reset", "08"))
        self.assertIn("is no number", self.refused("answer", "08.2", "many"))
        self.assertIn("no exercise 99.9", self.refused("answer", "99.9", "1"))
        self.assertIn("required: --results", self.refused("grade", "08"))

    def test_an_autograder_of_what_is_not_there(self):
        for words in [[], ["08"], ["77", "/tmp/out.zip"], ["08", "/nonexistent/out.zip"]]:
            run = subprocess.run(["bash", ROOT / "labs/autograder.sh", *words], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), words)

    def test_answers_are_of_exercises(self):
        with (ROOT / "labs/answers.toml").open("rb") as file:
            known = tomllib.load(file)
        self.assertLess({"19", "20", "21", "22"}, {exercise[:2] for exercise in known})
        for exercise, entry in known.items():
            chapter, number = exercise.split(".")
            (readme,) = ROOT.glob(f"chapters/{chapter}_*/README.md")
            self.assertRegex(readme.read_text(encoding="utf-8").partition("\n## Exercises\n")[2], rf"(?m)^{number}\. ★", exercise)
            self.assertEqual(set(entry), {"what", "digits", "sha256"}, exercise)

    def test_answers(self):
        for value, right in [("3.5", True), ("3.50", True), ("3.4", False), ("4", False)]:
            self.assertEqual(answers.judge("08.2", value)[0], right, value)


def rows(*all_rows, ended=""):
    return Outcome(ended, [("case", *row) for row in all_rows])


class Points(unittest.TestCase):
    GATES = [Gate("sum", "bits", 60, "sums"), Gate("sent", "count", 40, "bytes")]
    ONE, TWO = ("sum/0", "f32", "3f800000"), ("sum/1", "f32", "40000000")
    REFERENCE = rows(ONE, TWO, ("sent", "without", "300"), ("sent", "count", "100"))

    def points(self, yours):
        return [result.points for result in gates.judge(self.GATES, yours, self.REFERENCE)]

    def test_credit(self):
        for sent, points in [("100", 40), ("101", 19.9), ("150", 15), ("250", 5), ("300", 0), ("900", 0), ("99", 0)]:
            self.assertEqual(self.points(rows(self.ONE, self.TWO, ("sent", "count", sent))), [60, points])

    def test_fewer_may_be_better(self):
        gate = Gate("sent", "count", 40, "bytes", less_is_wrong=False)
        self.assertEqual(gates.credit(gate, 99, 100, 300), 1)

    def test_a_figure_does_not_count_where_bits_are_wrong(self):
        yours = rows(self.ONE, ("sum/1", "f32", "40000001"), ("sent", "count", "100"))
        self.assertEqual(self.points(yours), [30, 0])
        shown = gates.judge(self.GATES, yours, self.REFERENCE)[0]
        self.assertEqual((shown.yours, shown.reference), ("1 of 1 differ; [0] 2.00000024", "[0] 2"))

    def test_what_is_shown_of_wrong_rows(self):
        """The first of them, and how many there are; of many figures the first that differs."""
        figures = lambda text: rows(("ahead/rank 0", "text", text), ("ahead/rank 1", "text", "1 2 3 4 5"))  # noqa: E731
        shown = gates.judge([Gate("ahead", "bits", 60, "bytes")], figures("1 2 9 4000 5"), figures("1 2 3 4 5"))
        self.assertEqual((shown[0].yours, shown[0].reference), ("2 of 5 differ; [2] 9", "[2] 3"))
        self.assertIn("bytes; in: case, rank 0 (1 of 2 such comparisons fail)", gates.table(shown))

    def test_an_index_is_told_in_plain_words(self):
        thrown = "rank 0: vector::_M_range_check: __n (which is 18446744073709551615) >= this->size() (which is 3)"
        shown = gates.judge(self.GATES, rows(("", "threw", thrown)), self.REFERENCE)
        self.assertEqual(shown[0].yours, "rank 0: index -1 of a vector of 3 elements")

    def test_credit_is_for_what_stands_before_the_colon(self):
        """A row for each step says where a rank goes wrong, and one wrong step takes its points."""
        steps = lambda one, two: rows(("sum/rank 0: step 1", "f32", one), ("sum/rank 0: step 2", "f32", two), self.TWO)  # noqa: E731
        shown = gates.judge(self.GATES[:1], steps("0" * 8, "0" * 8), steps("0" * 8, "3f800000"))[0]
        self.assertEqual((shown.points, shown.case, shown.wrong, shown.rows), (30, "case, rank 0: step 2", 1, 3))

    def test_what_is_wanted_comes_from_the_tree(self):
        """Of an extension: rows with a = of the tree's program count, a student's do not."""
        tree = rows(*((f"={gate}", kind, value) for gate, kind, value in [self.ONE, self.TWO, ("sent", "count", "100")]), ("sent", "without", "300"), ("sum/0", "f32", "0" * 8))
        forged = rows(("=sum/0", "f32", "0" * 8), ("sum/0", "f32", "0" * 8), self.TWO, ("sent", "count", "100"))
        right = rows(self.ONE, self.TWO, ("sent", "count", "150"))
        for yours, points in [(right, [60, 15]), (forged, [30, 0]), (tree, [0, 0])]:
            self.assertEqual([result.points for result in gates.judge(self.GATES, yours, tree)], points)

    def test_a_gate_gets_no_more_than_the_one_it_names(self):
        """Memory that is bought with time: its own case gets as little as time does."""
        both = [Gate("kept", "count", 50, "bytes", with_gate="idle"), Gate("idle", "count", 50, "time", with_gate="kept")]
        figures = lambda kept, idle: Outcome("", [(case, gate, kind, value) for case in "ab" for gate, kind, value in [("kept", "without", "300"), ("idle", "without", "50"), ("kept", "count", kept if case == "a" else "100"), ("idle", "count", idle if case == "a" else "10")]])  # noqa: E731
        for kept, idle, points in [("100", "10", 50), ("100", "50", 25), ("300", "10", 25), ("200", "10", 31.25), ("200", "50", 25)]:
            shown = gates.judge(both, figures(kept, idle), figures("100", "10"))
            self.assertEqual([result.points for result in shown], [points, points], (kept, idle))
        shown = gates.judge(both, figures("100", "50"), figures("100", "10"))
        self.assertEqual(shown[0].yours, "100 (counts as far as idle does)")
        self.assertEqual(first_failure(shown), "idle")

    def test_a_check_is_told_in_its_own_words(self):
        thrown = "rank 1: /tree/common/comm/reduction.cpp:64: data.dtype == arrived_.dtype: U8 to reduce, workspace of F32"
        shown = gates.judge(self.GATES, rows(("", "threw", thrown)), self.REFERENCE)
        self.assertEqual(shown[0].yours, "rank 1: U8 to reduce, workspace of F32 [/tree/common/comm/reduction.cpp:64]")

    TRACE = Gate("program", "trace", 10, "the trace")
    LINES = ['{"step":0,"loss":"0x1p+2","param_hash":"aa","decimal":{"loss":4.0}}', '{"step":1,"loss":"0x1p+1","param_hash":"bb","decimal":{"loss":2.0}}']

    def test_the_first_line_of_a_trace_that_differs(self):
        other = self.LINES[1].replace("0x1p+1", "0x1p+0").replace("2.0", "1.0").replace("bb", "cc")
        shown = gates.judge_trace(self.TRACE, [self.LINES[0], other], self.LINES)
        self.assertEqual((shown.points, shown.yours, shown.reference), (5, "line 2: step 1, loss 1.0, param_hash cc", "line 2: step 1, loss 2.0, param_hash bb"))
        for yours, ended, told in [([], "ended with status 1", "0 of 2 lines, ended with status 1"), (self.LINES[:1], "", "1 of 2 lines"), (["{"], "", "line 1: {")]:
            self.assertEqual(gates.judge_trace(self.TRACE, yours, self.LINES, ended).yours, told)
        shown = gates.judge_trace(self.TRACE, [*self.LINES, "more"], self.LINES)
        self.assertEqual((shown.points, shown.yours, shown.reference), (0, "line 3: more", "line 3: no such line"))
        self.assertEqual(gates.judge_trace(self.TRACE, self.LINES, self.LINES).yours, "2 of 2 lines")

    def test_long_lines_of_a_trace_stand_below_their_row(self):
        lines = [line.replace('"bb"', '"' + "b" * 90 + '"') for line in self.LINES]
        shown = gates.table([gates.judge_trace(self.TRACE, self.LINES, lines)])
        self.assertIn("\n     yours: line 2: step 1, param_hash bb\n     reference: line 2: step 1, param_hash bbbb", shown)

    def test_nan_is_no_sum(self):
        self.assertEqual(self.points(rows(self.ONE, ("sum/1", "f32", "7fc00000"))), [30, 0])

    def test_nothing_measured(self):
        self.assertEqual(self.points(rows()), [0, 0])
        self.assertEqual(self.points(rows(("sum/0", "f32", ""), ("sent", "text", "0"))), [0, 0])

    def test_a_long_message_is_shown_once_and_below_its_row(self):
        message = "the ranks wait for each other" + "; rank 0 waits" * 9
        shown = gates.table(gates.judge(self.GATES, rows(("", "threw", message)), self.REFERENCE))
        self.assertEqual([shown.count(message), shown.count("as above")], [1, 1])
        self.assertLess(max(len(line) for line in shown.splitlines() if message not in line), 100)

    def test_where_a_program_ended_is_told(self):
        yours = rows(("", "begin", ""), ended="ended by SIGSEGV")
        shown = gates.judge(self.GATES, yours, self.REFERENCE)[0].yours
        self.assertEqual(shown, "ended by SIGSEGV, in the case case")

    def test_of_two_rows_that_differ_none_counts(self):
        """The first may be forged, or the second."""
        wrong, sent, forged = ("sum/0", "f32", "0" * 8), ("sent", "count", "300"), ("sent", "count", "100")
        for yours in [rows(wrong, self.ONE, self.TWO), rows(self.ONE, wrong, self.TWO)]:
            self.assertEqual(self.points(yours), [30, 0])
        for pair in [(forged, sent), (sent, forged), (("sent", "text", "100"),)]:
            self.assertEqual(self.points(rows(self.ONE, self.TWO, *pair)), [60, 0])


if __name__ == "__main__":
    assert ROOT
    unittest.main()
