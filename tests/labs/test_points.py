#!/usr/bin/env python3
"""What rows of a check are worth, and how a table shows them."""

import unittest

import house_of_labs  # noqa: F401

from engine import gates
from engine.labs import Gate
from engine.sandbox import Outcome
from engine.selftest import first_failure


def rows(*all_rows, ended="", last=("", "end", "")):
    return Outcome(ended, [("case", *row) for row in (*all_rows, last)])


class Points(unittest.TestCase):
    GATES = [Gate("sum", "bits", 60, "sums"), Gate("sent", "count", 40, "bytes")]
    ONE, TWO = ("sum/0", "f32", "3f800000"), ("sum/1", "f32", "40000000")
    REFERENCE = rows(ONE, TWO, ("sent", "without", "300"), ("sent", "count", "100"))

    def points(self, yours):
        return [result.points for result in gates.judge(self.GATES, yours, self.REFERENCE)]

    def test_credit(self):
        for sent, points in [("100", 40), ("101", 19.9), ("150", 15), ("250", 5), ("300", 0), ("900", 0), ("99", 0)]:
            self.assertEqual(self.points(rows(self.ONE, self.TWO, ("sent", "count", sent))), [60, points])
        fewer_may_be_better = Gate("sent", "count", 40, "bytes", less_is_wrong=False)
        self.assertEqual(gates.credit(fewer_may_be_better, 99, 100, 300), 1)

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

    def test_what_was_thrown_is_told_in_plain_words(self):
        for thrown, told in [
            ("vector::_M_range_check: __n (which is 18446744073709551615) >= this->size() (which is 3)", "index -1 of a vector of 3 elements"),
            ("/tree/common/comm/reduction.cpp:64: data.dtype == arrived_.dtype: U8 to reduce, workspace of F32",
             "U8 to reduce, workspace of F32 [/tree/common/comm/reduction.cpp:64]"),
        ]:  # fmt: skip
            shown = gates.judge(self.GATES, rows(("", "threw", f"rank 0: {thrown}")), self.REFERENCE)
            self.assertEqual(shown[0].yours, f"rank 0: {told}")

    def test_rows_that_no_check_writes_end_no_grader(self):
        """More bits than a number has, digits that are none, figures that are too long, a bracket without an end."""
        for kind, written, right in [("bf16", "ffffffff", "0000ffff"), ("f16", "ffffffff", "0000ffff"),
                                     ("text", "\u00b2 2 3 4 5", "1 2 3 4 5"), ("text", "9" * 5000 + " 2 3 4 5", "1 2 3 4 5")]:  # fmt: skip
            shown = gates.judge(self.GATES[:1], rows(("sum/0", kind, written)), rows(("sum/0", kind, right)))
            self.assertEqual(shown[0].points, 0, kind)
        shown = gates.judge_trace(self.TRACE, ["[" * 100000], self.LINES)
        self.assertEqual((shown.points, shown.reference), (0, f"line 1: {self.LINES[0]}"))

    def test_a_message_without_end_is_cut(self):
        for message in ["x" * 30000, f"vector::_M_range_check: __n (which is {'9' * 5000}) >= this->size() (which is 3)"]:
            shown = gates.judge(self.GATES, rows(("", "threw", message)), self.REFERENCE)
            self.assertEqual(shown[0].yours, message[:2000])
        self.assertEqual(len(gates.plain("x" * 1000000)), 1000000)  # in no time

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
        figures = lambda kept, idle: Outcome("", [(case, gate, kind, value) for case in "ab" for gate, kind, value in [("kept", "without", "300"), ("idle", "without", "50"), ("kept", "count", kept if case == "a" else "100"), ("idle", "count", idle if case == "a" else "10"), ("", "end", "")]])  # noqa: E731
        for kept, idle, points in [("100", "10", 50), ("100", "50", 25), ("300", "10", 25), ("200", "10", 31.25), ("200", "50", 25)]:
            shown = gates.judge(both, figures(kept, idle), figures("100", "10"))
            self.assertEqual([result.points for result in shown], [points, points], (kept, idle))
        shown = gates.judge(both, figures("100", "50"), figures("100", "10"))
        self.assertEqual(shown[0].yours, "100 (counts as far as idle does)")
        self.assertEqual(first_failure(shown), "idle")

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

    def test_what_is_no_sum(self):
        for yours, points in [([], [0, 0]), ([self.ONE, ("sum/1", "f32", "7fc00000")], [30, 0]), ([("sum/0", "f32", ""), ("sent", "text", "0")], [0, 0])]:
            self.assertEqual(self.points(rows(*yours)), points)

    def test_a_long_message_is_shown_once_and_below_its_row(self):
        message = "the ranks wait for each other" + "; rank 0 waits" * 9
        shown = gates.table(gates.judge(self.GATES, rows(("", "threw", message)), self.REFERENCE))
        self.assertEqual([shown.count(message), shown.count("as above")], [1, 1])
        self.assertLess(max(len(line) for line in shown.splitlines() if message not in line), 100)

    def test_a_program_that_leaves_has_no_rows(self):
        """One that is ended, as by a signal or by the clock, has those that came before."""
        right, begin = [self.ONE, self.TWO, ("sent", "count", "100")], ("", "begin", "")
        for ended, points in [("", [0, 0]), ("ended with status 1", [0, 0]), ("ended by SIGSEGV", [60, 40]), ("still running after 20 s", [60, 40])]:
            self.assertEqual(self.points(rows(*right, ended=ended, last=begin)), points, ended)
        self.assertEqual(self.points(rows(("", "end", ""), *right, last=begin)), [0, 0])
        shown = gates.judge(self.GATES, rows(last=begin), self.REFERENCE)[0].yours
        self.assertEqual(shown, "ended before its check did, so that nothing counts, in the case case")

    def test_where_a_program_ended_is_told(self):
        yours = rows(("", "begin", ""), ended="ended by SIGSEGV")
        shown = gates.judge(self.GATES, yours, self.REFERENCE)[0].yours
        self.assertEqual(shown, "ended by SIGSEGV, in the case case")


if __name__ == "__main__":
    unittest.main()
