#!/usr/bin/env python3
"""Exams: the same by seed, without answers, and by formulas that the chapters' exercises agree with."""

import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path

from house_of_labs import ROOT

import exam
from engine import answers


def said(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        return exam.main(list(words)), out.getvalue()


class Exams(unittest.TestCase):
    def test_formulas_give_the_answers_of_exercises(self):
        for exercise, value in {
            "06.3": exam.block_inputs(48, 1024, 1600),
            "09.5": exam.room(50304, 1024, 768) / (12 * 768**2 + 13 * 768),
            "10.2": next(GA for GA in range(1, 9) if exam.reshard_ratio(GA) == 2),
            "12.1": exam.fewest_micros(8, 0.1),
            "12.4": exam.head_in_blocks(768, 50257),
            "13.1": exam.head_in_blocks(12288, 50304),
            "19.1": exam.keys_and_values(80, 8192, 8, 128),
            "19.2": exam.same_matrices(192, 1 / 4),
            "22.1": exam.owner_rows(64, 6, 8),
        }.items():
            self.assertTrue(answers.judge(exercise, repr(float(value)))[0], f"{exercise}: {value}")

    def test_formulas_without_an_exercise_give_the_chapters_examples(self):
        for found, written in [(exam.cosine_rate(5, 2, 10, 0.1), 0.72), (exam.second_step(2, 2, 0.9, 0.95), 1), (exam.clip_factor([4], 1), 0.25), (exam.clip_factor([0.5], 1), 1)]:
            self.assertAlmostEqual(found, written, places=2)
        self.assertEqual(exam.block_flops(8, 128), 6 * 12 * 8 * 128**2)

    def test_a_question_has_many_variants(self):
        for path in exam.PATHS:
            exams = [exam.exam(path, seed) for seed in range(300)]
            for variants in zip(*exams):
                self.assertGreaterEqual(len({answer for _, _, answer in variants}), 10, variants[0])

    def test_right_digits_are_right(self):
        """Those that are rounded, however many there are."""
        for value, right in [("0.9965", True), ("0.997", True), ("0.99650349", True), ("0.996", False), ("0.9959", False), ("0.998", False), ("0.9972", True), ("9.965", False), ("-0.997", False)]:
            self.assertEqual(exam.is_right(value, 0.99650349), right, value)
        for path in exam.PATHS:
            for seed in range(100):
                for _, text, answer in exam.exam(path, seed):
                    for digits in (3, 4, 5, 9):
                        self.assertTrue(exam.is_right(f"{answer:.{digits}g}", answer), text)

    def test_twelve_questions_by_seed(self):
        for path in exam.PATHS:
            for seed in range(20):
                questions = exam.exam(path, seed)
                self.assertEqual(len({text for _, text, _ in questions}), 12)
                self.assertTrue(all(answer > 0 for _, _, answer in questions))
                self.assertEqual(questions, exam.exam(path, seed))
            self.assertNotEqual(exam.exam(path, 1), exam.exam(path, 2))

    def test_chapters_are_there(self):
        for questions in exam.PATHS.values():
            for chapter, text, _ in questions:
                self.assertEqual(len(list(ROOT.glob(f"chapters/{chapter}_*/README.md"))), 1, text)

    def test_answers_are_told_on_request_alone(self):
        drawn = ["systems", "--seed", "3", "--key", "word"]
        shown, told = said(*drawn)[1], said(*drawn, "--answers")[1]
        for others in [["systems", "--seed", "3"], ["systems", "--seed", "3", "--key", "World"]]:
            self.assertNotEqual(said(*others)[1], shown)
        for line in told.splitlines():
            k, answer, _ = re.match(r" *(\d+)  (\S+)  (chapter \d\d)$", line).groups()
            self.assertNotIn(f" {answer} ", shown)
            self.assertEqual(said(*drawn, "--answer", k, answer)[0], 0, line)
            self.assertEqual(said(*drawn, "--answer", k, str(1.1 * float(answer)))[0], 1, line)

    def test_a_class(self):
        """Each student has a sheet of their own, and answers to it alone have all points."""
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "names").write_text("Ada\nBen Ode\nCleo\n", encoding="utf-8")
            words = ["systems", "--seed", "3", "--key", "heron", "--class", str(folder / "names")]
            self.assertEqual(said(*words, "--sheets", str(folder / "sheets"))[0], 0)
            sheets = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "sheets").iterdir()}
            self.assertEqual({len(sheets), len({text.partition("\n")[2] for text in sheets.values()})}, {3})
            right = "".join(f"{k} {answer:.3g}\n" for k, (_, _, answer) in enumerate(exam.exam("systems", 3, "heron Ada"), 1))
            (folder / "answers").mkdir()
            (folder / "answers/Ada.txt").write_text(right, encoding="utf-8")
            (folder / "answers/Ben Ode.txt").write_text(right + "13 1\n2 many\n3 1e9999999\n", encoding="utf-8")
            grading = [*words, "--handed-in", str(folder / "answers"), "--csv", str(folder / "points.csv")]
            status, told = said(*grading)
            self.assertEqual((status, told), (1, "Ben Ode: not read: 13 1\nBen Ode: not read: 2 many\nBen Ode: not read: 3 1e9999999\nCleo: nothing handed in\n"))
            rows = (folder / "points.csv").read_text(encoding="utf-8").splitlines()
            self.assertEqual(rows[1], "Ada,12" + 12 * ",1")
            self.assertLess(int(rows[2].split(",")[1]), 12)
            self.assertEqual(rows[3], "Cleo,0" + 12 * ",0")
            (folder / "twice").write_text("Ada\nAda\n", encoding="utf-8")
            for more in [["--sheets", str(folder / "sheets")], ["--csv", "x"], ["--class", str(folder / "twice"), "--sheets", str(folder / "more")], ["--class", "/nonexistent", "--sheets", "x"]]:
                status, told = said(*words, *more)
                self.assertEqual((status, told.count("\n")), (2, 1), more)
            self.assertEqual(said(*grading)[0], 2)

    def test_bad_input_is_one_line(self):
        for words in [["history", "--seed", "1"], ["llama"], ["llama", "--seed", "x"], ["llama", "--seed", "1", "--answer", "13", "1"], ["llama", "--seed", "1", "--answer", "1", "many"], ["llama", "--seed", "1", "--answer", "1", "1e9999999"], ["llama", "--seed", "1", "--answers"], ["llama", "--seed", "1", "--key", "", "--answers"]]:
            status, text = said(*words)
            self.assertEqual((status, text.count("\n")), (2, 1), words)


if __name__ == "__main__":
    unittest.main()
