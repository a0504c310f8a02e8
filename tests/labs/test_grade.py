#!/usr/bin/env python3
"""Submissions, whole: compiled and graded as an autograder does. The folder of the build is given."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import cheats
from house_of_labs import ROOT
from engine import grade, judge, sandbox
from engine.build import STUDENT, Build, DoesNotCompile
from engine.labs import Refused, find, stub, write

FILE = "chapters/08_zero1/zero1.h"
BUILD = Path("build/cpu")


class Grade(unittest.TestCase):
    def graded(self, files, number="08"):
        """results.json of a submission {name: text}."""
        lab = find(number, ROOT)
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), files)
            results = Path(folder) / "results.json"
            grade.grade(lab, Build(ROOT, BUILD), Path(folder), results)
            found = json.loads(results.read_text(encoding="utf-8"))
        # Fields that gradescope-autograders.readthedocs.io/en/latest/specs has; a score or tests.
        self.assertLessEqual(set(found), {"score", "output", "visibility", "stdout_visibility", "tests", "extra_data"})
        self.assertTrue("score" in found or found["tests"])
        return found

    def test_nothing_is_handed_in(self):
        found = self.graded({"main.cpp": "int main() {}"})
        self.assertEqual(found["score"], 0)
        self.assertIn(f"no file {FILE}", found["output"])

    def test_does_not_compile(self):
        found = self.graded({f"work/08/{FILE}": "// mine\n" + cheats.in_all_bodies(stub(find("08", ROOT), FILE), "score += 100;")})
        self.assertEqual(found["score"], 0)
        self.assertRegex(found["output"], r"does not compile:\n(.*\n)*zero1.h:\d+:\d+: error: .score. was not declared")
        self.assertIn("a helper is a lambda in a body", found["output"])

    def test_what_was_not_computed(self):
        """A trace of another by a program that boasts, rows that were not measured, a file of root's. Cheats that
        take the same way, with code of another kind, are for the night."""
        for name in ["a file of root's", "code before main()", "a link to the trace", "rows in a body"]:
            cheat = cheats.all_cheats()[name]
            found = self.graded(cheat.files, cheat.lab)
            self.assertEqual(grade.score(found), cheat.points, name)
            self.assertTrue(cheats.is_shown(found, cheat), name)
            if name == "code before main()":
                self.assertRegex(found["output"], "^zero1.h.*closes a brace that it has not opened")
            self.assertEqual(sum(test["max_score"] for test in found["tests"]), 0 if "score" in found else 100)
            for test in found["tests"]:
                self.assertEqual({"name", "score", "max_score", "output", "visibility"}, set(test))
                self.assertTrue(test["output"].startswith(next(gate.what for gate in find(cheat.lab, ROOT).gates if gate.name == test["name"])))

    def test_a_students_program_knows_nothing_of_what_must_come_out(self):
        """An extension's own check does. And what begins before main() is noted."""
        lab, path = find("12x", ROOT), cheats.ZB_H2
        with tempfile.TemporaryDirectory() as folder:
            build = Build(ROOT, BUILD)
            write(Path(folder) / "work", {path: stub(lab, path).replace("// end of yours", "inline const bool mine = std::uncaught_exceptions() > 0;\n// end of yours")})
            mine = build.program("lab_12x_zb_h2", "labs/12x_zb_h2/check.cpp", lab, Path(folder) / "work", Path(folder) / "scratch", True)
            for program, wanted in [(BUILD / "labs/lab_12x_zb_h2", True), (mine, False)]:
                rows = sandbox.run([program], folder, "5 reference").rows
                self.assertEqual(any(gate.startswith("=") for _, gate, _, _ in rows), wanted)
        self.assertEqual(build.notes, ["labs/12x_zb_h2/check.cpp, compiled with this submission, runs code before main()"])

    def test_the_trace_is_another_each_time(self):
        self.assertNotEqual(judge.text_to_train_on(2), judge.text_to_train_on(3))
        with tempfile.TemporaryDirectory() as folder:
            traces = [judge.reference_trace(find("08", ROOT), Build(ROOT, BUILD), Path(folder) / str(seed), seed) for seed in (2, 3)]
        self.assertEqual([len(trace) for trace in traces], [6, 6])
        self.assertFalse(set(traces[0]) & set(traces[1]))

    @unittest.skipUnless(sandbox.has_room(), "may not chroot: the compiler sees what its user sees")
    def test_what_a_compiler_can_read(self):
        """Were a file taken as it is, the compiler would still find nothing: no reference, no mutant, no
        text, no file of root's."""
        lab = find("08", ROOT)
        names = [ROOT / FILE, "/etc/shadow", "/proc/self/status", ROOT / "labs/08_zero1/README.md", ROOT / "labs/08_zero1/mutants/bucket_lost.toml", BUILD / "labs/lab_08_zero1"]
        tests = " || ".join(f'__has_include("{name}")' for name in names)
        with tempfile.TemporaryDirectory() as folder:
            work, scratch = Path(folder) / "work", Path(folder) / "scratch"
            write(work, {FILE: f'#if {tests}\n#error reads\n#elif __has_include("{STUDENT}/{FILE}")\n#error walled\n#endif\n'})
            Path(folder).chmod(0o755)
            scratch.mkdir()
            with self.assertRaisesRegex(DoesNotCompile, "#error walled"):
                Build(ROOT, BUILD).program_in_rooms("lab_08_zero1", "labs/08_zero1/check.cpp", lab, work, scratch)
            there = [str(path) for path in scratch.rglob("*") if path.is_file()]
        self.assertTrue(any(path.endswith("/labs/08_zero1/check.cpp") for path in there))
        for path in there:
            self.assertTrue(path.endswith(f"{STUDENT}/{FILE}") or "zero1.h" not in path, path)
            self.assertNotRegex(path, r"README|mutants|hints|\.toml$|libladder|/bin/ch|labs/lab_")

    def test_a_folder_that_is_not_there(self):
        with self.assertRaisesRegex(Refused, "no folder"):
            grade.grade(find("08", ROOT), Build(ROOT, BUILD), Path("/nonexistent"), Path("/tmp/r.json"))


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
