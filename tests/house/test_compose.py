#!/usr/bin/env python3
"""scripts/compose.py: what it settles in a merge, and what it leaves to a person."""

import sys
import unittest
from unittest import mock

from calls import FromAFolder
from house import ROOT

sys.path.append(str(ROOT / "scripts"))
import chapter_tree  # noqa: E402
import compose  # noqa: E402

BASE = ["read(o.run, o.sgd);", "", "// why", "step();", "", "report();"]


class Compose(FromAFolder):
    def merged(self, first, second):
        """Two branches of 01_base, with these lines."""
        rows = []
        for name, parent, lines in (("01_base", "-", BASE), ("14_first", "01_base", first), ("15_second", "01_base", second)):
            (self.here / "chapters" / name).mkdir(parents=True)
            (self.here / "chapters" / name / "main.cpp").write_text("\n".join(lines) + "\n")
            rows.append(f"{name} {parent} 280 120 changed\n")
        (self.here / "scripts").mkdir()
        (self.here / "scripts/chapters.txt").write_text("".join(rows))
        with mock.patch.object(compose, "ROOT", self.here):
            return compose.best_merge(["14_first", "15_second"], chapter_tree.chapters(self.here))

    def test_both_ideas(self):
        """Words of one line, additions at one place, a comment beside code, and lines that lie apart."""
        first = ["read(o.run, o.sgd, o.first);", "", "// why, told anew", "step();", "", "report();", "tell_first();"]
        second = ["read(o.run, o.sgd, o.second);", "", "// why", "step(2);", "", "second();", "report();", "tell_second();"]
        merged = self.merged(first, second)
        self.assertEqual((merged.base, merged.by_lines, merged.left), ("01_base", 3, 0))
        self.assertEqual(merged.lines, ["read(o.run, o.sgd, o.first, o.second);", "", "// why", "step(2);", "", "second();",
                                        "report();", "tell_first();", "tell_second();"])

    def test_a_word_that_both_change_is_left(self):
        """Both sides and the base stand in the program."""
        changed = [[line.replace("step", word) for line in BASE] for word in ("step_first", "step_second")]
        merged = self.merged(*changed)
        self.assertEqual((merged.by_lines, merged.left), (1, 1))
        at = merged.lines.index("<<<<<<< 14")
        self.assertEqual(merged.lines[at:at + 7], ["<<<<<<< 14", "step_first();", "||||||| 01_base", "step();", "=======",
                                                   "step_second();", ">>>>>>> 15_second"])
        self.assertEqual([*merged.lines[:at], "step();", *merged.lines[at + 7:]], BASE)

    def test_a_pair_of_the_tree_that_is_left(self):
        (self.here / "CMakeCache.txt").touch()
        done = self.call("compose.py", "27", "28", "--build", str(self.here))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        left = (self.here / "composed/27_28.cpp").read_text().count("\n||||||| ")
        self.assertGreater(left, 0)
        self.assertIn(f" {left} left", done.stdout)

    def test_the_pair_of_the_page_leaves_nothing(self):
        table = chapter_tree.chapters()
        merged = compose.best_merge(["28_async_checkpoint", "30_hsdp"], table)
        self.assertEqual((merged.base, merged.left), ("10_zero3", 0))
        for line in ("o.async", "o.hsdp"):
            self.assertIn(line, "\n".join(merged.lines))

    def test_bad_words(self):
        (self.here / "CMakeCache.txt").touch()
        for words in ([], ["28"], ["28", "28"], ["10", "28"], ["28", "x"], ["--all", "28", "30"], ["14", "29"],
                      ["28", "30", "--build", "nowhere"]):
            done = self.call("compose.py", *words, *([] if "--build" in words else ["--build", str(self.here)]))
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), (words, done.stderr))
        self.assertEqual(self.left(), ["CMakeCache.txt"])
        self.pretend("cmake", text="#!/bin/sh\necho no such folder >&2\nexit 1\n")
        done = self.call("compose.py", "28", "30", "--build", str(self.here))
        self.assertEqual((done.returncode, done.stderr), (2, f"compose.py: cmake {self.here} failed: no such folder\n"))


if __name__ == "__main__":
    unittest.main()
