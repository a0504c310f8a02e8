#!/usr/bin/env python3
"""Exams: the same by seed, without answers, and by formulas that the chapters' exercises agree with."""

import contextlib
import io
import re
import unittest

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
            "06.4": exam.block_inputs(48, 1024, 1600),
            "09.2": exam.room(50304, 1024, 768) / (12 * 768**2 + 13 * 768),
            "10.4": next(GA for GA in range(1, 9) if exam.reshard_ratio(GA) == 2),
            "12.1": exam.fewest_micros(8, 0.1),
            "12.4": exam.head_in_blocks(768, 50257),
            "13.6": exam.head_in_blocks(12288, 50304),
            "19.1": exam.keys_and_values(80, 8192, 8, 128),
            "19.2": exam.same_matrices(192, 1 / 4),
            "20.2": exam.ulysses_from(1, 1),
            "21.2": exam.undropped(8, 2),
            "22.1": exam.owner_rows(64, 6, 8),
        }.items():
            self.assertTrue(answers.judge(exercise, repr(float(value)))[0], f"{exercise}: {value}")

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
        shown = said("systems", "--seed", "3")[1]
        told = said("systems", "--seed", "3", "--answers")[1]
        for line in told.splitlines():
            k, answer, _ = re.match(r" *(\d+)  (\S+)  (chapter \d\d)$", line).groups()
            self.assertNotIn(f" {answer} ", shown)
            self.assertEqual(said("systems", "--seed", "3", "--answer", k, answer)[0], 0, line)
            self.assertEqual(said("systems", "--seed", "3", "--answer", k, str(1.1 * float(answer)))[0], 1, line)

    def test_bad_input_is_one_line(self):
        for words in [["history", "--seed", "1"], ["llama"], ["llama", "--seed", "x"], ["llama", "--seed", "1", "--answer", "13", "1"], ["llama", "--seed", "1", "--answer", "1", "many"]]:
            status, text = said(*words)
            self.assertEqual((status, text.count("\n")), (2, 1), words)


if __name__ == "__main__":
    unittest.main()
