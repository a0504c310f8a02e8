#!/usr/bin/env python3
"""Submissions, whole: compiled and graded as an autograder does. The folder of the build is given."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

from house_of_labs import ROOT
from engine import grade
from engine.build import Build
from engine.labs import Refused, find, stub

FILE = "chapters/08_zero1/zero1.h"
BUILD = Path("build/cpu")


class Grade(unittest.TestCase):
    def graded(self, files):
        """results.json of a submission {name: text}."""
        lab = find("08", ROOT)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            results = Path(folder) / "results.json"
            grade.grade(lab, Build(ROOT, BUILD), Path(folder), results)
            found = json.loads(results.read_text(encoding="utf-8"))
        # Fields that gradescope-autograders.readthedocs.io/en/latest/specs has; a score or tests.
        self.assertLessEqual(set(found), {"score", "output", "visibility", "stdout_visibility", "tests"})
        self.assertTrue("score" in found or found["tests"])
        return found

    def test_nothing_is_handed_in(self):
        found = self.graded({"main.cpp": "int main() {}"})
        self.assertEqual(found["score"], 0)
        self.assertIn(f"no file {FILE}", found["output"])

    def test_does_not_compile(self):
        for files in [
            {"zero1.h": "#error score: 100\n"},
            {"zero1.h": '#include "/dev/zero"\n'},  # a file without end
            {f"work/08/{FILE}": "#error in a folder, as a zip has it\n"},
        ]:
            found = self.graded(files)
            self.assertEqual(found["score"], 0)
            self.assertIn("does not compile", found["output"])

    def test_reads_the_reference(self):
        for include in [f'include "{ROOT / FILE}"', f'include_next "{FILE}"', 'include "/etc/hostname"']:
            found = self.graded({"zero1.h": f"#pragma once\n#{include}\n"})
            self.assertEqual(found["score"], 0, include)
            self.assertIn("which it may not", found["output"])

    def test_carries_the_reference_along(self):
        """Its program as data, for running it: no include says so."""
        program = BUILD / "labs/lab_08_zero1"
        text = stub(find("08", ROOT), FILE) + f'asm(".inc" "bin \\"{program}\\"");\n'
        found = self.graded({"zero1.h": text})
        self.assertEqual(found["score"], 0)
        self.assertIn(f"the assembler reads {program}", found["output"])

    def test_says_what_it_deserves(self):
        """A stub that ends the program with success as soon as it is called, and boasts."""
        boast = 'std::printf("score: 100\\n"); std::exit(0);'
        text = stub(find("08", ROOT), FILE)
        text = text.replace("throw std::logic_error", f"{boast} throw std::logic_error")
        text = text.replace("#include <cstdint>", "#include <cstdint>\n#include <cstdio>\n#include <cstdlib>")
        found = self.graded({"zero1.h": text})
        self.assertEqual(len(found["tests"]), len(find("08", ROOT).gates), found)
        self.assertEqual(sum(test["score"] for test in found["tests"]), 0)
        self.assertEqual(sum(test["max_score"] for test in found["tests"]), 100)
        for test in found["tests"]:
            self.assertEqual({"name", "score", "max_score", "output", "visibility"}, set(test))

    def test_a_folder_that_is_not_there(self):
        with self.assertRaisesRegex(Refused, "no folder"):
            grade.grade(find("08", ROOT), Build(ROOT, BUILD), Path("/nonexistent"), Path("/tmp/r.json"))


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
