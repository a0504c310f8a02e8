#!/usr/bin/env python3
"""Labs without a compiler: stubs, what leaks, a student's files, answers."""

import contextlib
import errno
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
import unittest
import unittest.mock
import zipfile

from house_of_labs import ROOT, Tree

import lab as lab_py
from engine import answers, build, gates, grade, judge, musts, sandbox
from engine.desk import Desk, pairs
from engine.functions import functions_of
from engine.labs import Refused, all_labs, bodies, find, leaks, mutated, reading, removed_lines, stub


class Labs(unittest.TestCase):
    def test_no_line_that_was_removed_is_in_a_handout(self):
        for lab in all_labs():
            self.assertEqual(leaks(lab), [], lab.name)

    def test_a_handout_says_which_pages_are_closed(self):
        """Pages that show two lines or more of what the stub has lost, but READMEs of this chapter and
        of later ones, which one sentence closes."""
        pages = {path: path.read_text(encoding="utf-8") for folder in ("chapters", "docs") for path in (ROOT / folder).rglob("*.md")}
        for lab in all_labs():
            handout = (lab.folder / "README.md").read_text(encoding="utf-8")
            if lab.is_extension:
                self.assertIn("Nothing is closed.", handout, lab.name)
                continue
            if not lab.has_chapter:
                self.assertRegex(handout, f"(?m)^Closed .*`{next(iter(lab.files))}`.*`labs/\\*/mutants/`")
                continue
            for what in ["this chapter and of later ones in `chapters/`", f"`work/{lab.number}/README.md` is open", "`labs/*/mutants/`", "`--no-diff`"]:
                self.assertIn(what, handout, lab.name)
            lines = removed_lines(lab)
            for page, text in pages.items():
                later = page.parent.parent.name == "chapters" and page.parent.name >= lab.name
                if not later and sum(line in text for line in lines) > 1:
                    self.assertIn(f"`{page.relative_to(ROOT)}`", handout, lab.name)

    def test_mutants_change_what_is_there(self):
        for lab in all_labs():
            whole = {path: (ROOT / path).read_text(encoding="utf-8") for path in lab.files}
            for mutant in lab.mutants:
                self.assertNotEqual(mutated(lab, mutant), whole, mutant.name)
                self.assertIn(mutant.gate, [gate.name for gate in lab.gates], f"{lab.name}: {mutant.name}")

    def test_a_sentence_that_says_what_must_hold_has_a_mutant(self):
        for lab in all_labs():
            self.assertEqual([must.sentence for must in musts.musts(lab) if not must.mutants], [], lab.name)

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


class Functions(unittest.TestCase):
    SOURCE = r"""
#define BEGIN(x) { x(
namespace ladder::one {
namespace {
template <class T, std::enable_if_t<(sizeof(T) > 1)>* = nullptr>
std::vector<std::pair<T, T>> first(const T& x, Options o = {}) { return {{x, x}}; }
constexpr std::array kAll{1, 2};
const auto all = [](int x) { return x; };
}  // namespace, and no }
struct [[nodiscard]] Sum : Base<int> {
  explicit Sum(int n) : Base<int>(n), parts_{n}, text_{.from = "}"} { parts_.clear(); }
  int of(char c) const noexcept { return c == '{' ? 1 : parts_.at(0); }
  int of() { return 2; }
 private:
  std::vector<int> parts_{};
};
enum class Kind : uint8_t { A, B };
Sum::~Sum() = default;
auto Sum::twice(int x) -> std::vector<int> { return {x, x}; }
}  // namespace ladder::one
"""

    def test_where_functions_begin_and_end(self):
        bodies = {name: self.SOURCE[begin:end] for name, (begin, end) in functions_of(self.SOURCE).items()}
        self.assertEqual(bodies, {
            "one::first": "{ return {{x, x}}; }", "Sum::Sum": "{ parts_.clear(); }", "Sum::of#1": "{ return c == '{' ? 1 : parts_.at(0); }",
            "Sum::of#2": "{ return 2; }", "Sum::twice": "{ return {x, x}; }",
        })  # fmt: skip


class Planted(Tree):
    def test_a_line_that_leaks(self):
        line = "      collectives.all_gather(section, chunks_of(section, collectives));\n"
        self.replace("labs/08_zero1/README.md", "## What to hand in", line + "## What to hand in")
        self.assertEqual(len(leaks(find("08", self.root))), 1)

    def test_a_diff_in_the_chapters_text_would_leak(self):
        lab = find("08", self.root)
        self.assertNotIn("+  Zero1 zero1{", reading(lab))
        self.replace("chapters/08_zero1/README.md", "## Exercises", "`start(grads, 0); // no`\nfor (Pending& pending : pending_) pending.wait();\n## Exercises")
        self.assertEqual(len(leaks(lab)), 1)

    def test_a_mutant_that_no_longer_fits(self):
        lab = find("08", self.root)
        self.replace("chapters/08_zero1/zero1.h", "start(grads, 0);", "start(grads, int64_t{0});")
        with self.assertRaisesRegex(Refused, "mutant bucket_lost: not once in"):
            for mutant in lab.mutants:
                mutated(lab, mutant)

    def test_a_sentence_without_a_mutant(self):
        self.replace("labs/30_hsdp/README.md", "the number of the rank in it |", "the number of the rank in it; both from 0 |")
        self.assertIn("30  both from 0\n      no mutant", "\n".join(musts.table(find("30", self.root))))
        self.replace("labs/30_hsdp/README.md", "throws `UserError` if", "refuses it if")
        with self.assertRaisesRegex(ValueError, "any_number_of_replicas: in 0 sentences of the handout: throws"):
            musts.musts(find("30", self.root))

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

    def test_a_renamed_function_is_refused_and_no_file_is_put_aside(self):
        lab, desk = find("08", self.root), Desk(self.root)
        mine = desk.start(lab)[0]
        self.replace("chapters/08_zero1/zero1.h", "void wait(", "void finished(")
        with self.assertRaisesRegex(Refused, "zero1.h has no function Zero1::wait, which labs/08_zero1/lab.toml names"):
            desk.reset(lab)
        self.assertTrue(mine.is_file())

    def test_rules_for_an_assistant(self):
        """They name each function and what is closed, have no line of the answer, and stay as they are."""
        for number in ["08", "31", "12x"]:
            lab, desk = find(number, self.root), Desk(self.root)
            desk.start(lab)
            page = desk.of(lab) / "AGENTS.md"
            text = page.read_text(encoding="utf-8")
            for path, names in lab.files.items():
                self.assertEqual(f"`{path}`" in text, not lab.is_extension)
                for name in names:
                    self.assertIn(f"  - `{name}`\n", text)
            self.assertEqual([line for line in removed_lines(lab) if line in text], [])
            page.write_text("mine", encoding="utf-8")
            desk.reset(lab)
            self.assertEqual(page.read_text(encoding="utf-8"), "mine")

    def test_functions_stand_beside_each_other(self):
        lab, desk = find("08", self.root), Desk(self.root)
        mine = desk.start(lab)[0]
        shown = {name: (ours.count("\n"), theirs.count("\n")) for name, ours, theirs in pairs(lab, desk)}
        self.assertEqual(shown.keys(), set(lab.files["chapters/08_zero1/zero1.h"]))
        self.assertEqual(shown["Zero1::wait"], (2, 6))
        mine.write_text("mine", encoding="utf-8")
        self.assertEqual({ours for _, ours, _ in pairs(lab, desk)}, {None})

    def test_a_broken_state_is_told(self):
        desk = Desk(self.root)
        desk.note(find("08", self.root), hints=1)
        desk.file.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(Refused, "is no JSON"):
            desk.state(find("08", self.root))

    def test_a_full_disk_takes_no_state(self):
        lab, desk = find("08", self.root), Desk(self.root)
        desk.note(lab, hints=1)
        with unittest.mock.patch("pathlib.Path.replace", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(Refused, "state.json cannot be written and stays as it was: No space"):
                desk.note(lab, hints=2)
        self.assertEqual(desk.state(lab), {"hints": 1})
        self.assertEqual([path.name for path in desk.folder.iterdir()], ["state.json"])


class Grading(Tree):
    def grade(self, results, seed=None):
        with unittest.mock.patch.object(grade, "evaluate", return_value={"score": 1, "tests": []}):
            return grade.grade(find("08", self.root), unittest.mock.Mock(), self.root, results, seed)

    def test_no_file_of_others_is_replaced(self):
        desk = Desk(self.root)
        desk.note(find("08", self.root), hints=1)
        link = self.root / "link.json"
        link.symlink_to("nowhere")
        for results in [*desk.start(find("08", self.root)), desk.file, desk.folder, link]:
            before = results.read_bytes() if results.is_file() else None
            with self.assertRaisesRegex(Refused, "is there and stays as it is; legal is"):
                self.grade(results)
            self.assertEqual(results.read_bytes() if results.is_file() else None, before)

    def test_old_results_do_not_outlive_a_grading_that_fails(self):
        """A full disk, one that fills up beneath the compiler, and a tree that does not build: none is the student's fault."""
        results, lab = self.root / "results.json", find("08", self.root)
        full = OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
        beneath = unittest.mock.Mock(**{"f_bavail": 0, "f_frsize": 1, "f_files": 0})
        for what, fault in [("judge.check_seeds", full), ("judge.check_seeds", grade.DoesNotCompile("ld: No space left")), ("judge.targets", Refused("the tree"))]:
            self.grade(results)
            with unittest.mock.patch(f"engine.grade.{what}", side_effect=fault), unittest.mock.patch.object(grade, "taken", return_value=[]), unittest.mock.patch("os.statvfs", return_value=beneath):
                with self.assertRaises((OSError, Refused)):
                    grade.grade(lab, unittest.mock.Mock(), self.root, results)
            self.assertFalse(results.exists(), fault)

    def test_a_seed_repeats_a_grading(self):
        """Each grading writes the file anew."""
        results, seeds = self.root / "results.json", []
        for seed in [None, None, 7]:
            said = self.grade(results, seed)
            seeds.append(json.loads(results.read_text(encoding="utf-8"))["extra_data"]["seeds"])
            self.assertIn(f"grade --seed {seeds[-1][0]} repeats it", said)
        self.assertNotEqual(seeds[0], seeds[1])
        self.assertEqual(seeds[2], [7, 8, 9])

    def test_what_is_no_file_of_the_lab(self):
        """Folders in folders, a file that is too long, a link to another's, and links that go round."""
        lab, deep, long = find("08", self.root), self.root / "deep", self.root / "long"
        self.addCleanup(sandbox.remove, deep)
        subprocess.run([sys.executable, "-c", f"import os\nos.mkdir('{deep}'); os.chdir('{deep}')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"], check=True)
        long.mkdir()
        (long / "zero1.h").write_text("/" * ((1 << 20) + 1), encoding="utf-8")
        link = self.root / "link"
        link.mkdir()
        (link / "chapters").symlink_to(self.root / "chapters")
        for i in range(9):
            (link / str(i)).symlink_to(".")
        path = "chapters/08_zero1/zero1.h"
        for folder, told in [(deep, f"no file {path} in"), (long, "zero1.h has 1,048,577 bytes; at most 1,048,576 are taken"), (link, f"no file {path} in")]:
            self.assertTrue(grade.evaluate(lab, None, folder, [1], [])["output"].startswith(told), folder)

    def test_a_file_in_a_folder_of_any_name(self):
        """What a zip of the folder with one's file holds."""
        mine = self.root / "in/my lab/zero1.h"
        mine.parent.mkdir(parents=True)
        mine.write_text("mine", encoding="utf-8")
        self.assertEqual(grade.found(self.root / "in", "chapters/08_zero1/zero1.h"), mine)
        other = self.root / "in/work/08/chapters/08_zero1/zero1.h"  # one that says where it belongs comes first
        other.parent.mkdir(parents=True)
        other.write_text("mine", encoding="utf-8")
        self.assertEqual(grade.found(self.root / "in", "chapters/08_zero1/zero1.h"), other)

    def test_a_reference_that_does_not_end_well_is_no_students_fault(self):
        lab, tree = find("08", self.root), unittest.mock.Mock()
        with unittest.mock.patch.object(sandbox, "run", return_value=sandbox.Outcome("ended by SIGKILL", [], "no room")):
            with self.assertRaisesRegex(Refused, "the reference of lab 08 ended by SIGKILL: no room"):
                judge.check_seeds(lab, tree, self.root, [1], False)
            with self.assertRaisesRegex(Refused, "the reference of lab 08, ch08_zero1, ended by SIGKILL: no room"):
                judge.reference_trace(lab, tree, self.root / "scratch", 1)
        thrown = sandbox.Outcome("", [("c", "", "threw", "out of range"), ("", "", "end", "")], "")
        with unittest.mock.patch.object(sandbox, "run", return_value=thrown):
            with self.assertRaisesRegex(Refused, "the reference of lab 08 threw out of range"):
                judge.check_seeds(lab, tree, self.root, [1], False)

    def test_a_judge_that_does_not_end_well_says_so(self):
        rows = [("c", "what", "returned", "1"), ("", "", "end", "")]
        with unittest.mock.patch.object(judge, "measured", return_value=sandbox.Outcome("ended by SIGSEGV", [], "")):
            found = judge.believed(sandbox.Outcome("", rows), sandbox.Outcome("", rows), None, 1)
        self.assertEqual(found.ended, "ended by SIGSEGV")

    def test_latin_1_in_a_comment_costs_nothing(self):
        lab, mine = find("08", self.root), self.root / "mine"
        mine.mkdir()
        text = (self.root / "chapters/08_zero1/zero1.h").read_text(encoding="utf-8").replace("{\n", "{  // na\u00efve\n")
        (mine / "zero1.h").write_bytes(text.encode("latin-1"))
        with unittest.mock.patch.object(grade, "run_all", return_value=[gates.Result(gate, 1) for gate in lab.gates]):
            found = grade.evaluate(lab, unittest.mock.Mock(notes=[]), mine, [1], [])
        self.assertEqual(sum(test["score"] for test in found["tests"]), 100)
        self.assertTrue(found["output"].startswith("zero1.h: is not UTF-8; it is read as Latin-1, which costs no points"))

    def test_what_nobody_has_thought_of_is_a_result(self):
        lab = find("08", self.root)
        with contextlib.redirect_stderr(io.StringIO()) as err, unittest.mock.patch.object(grade, "taken", return_value=[]):
            with unittest.mock.patch.object(grade, "run_all", side_effect=ValueError):
                found = grade.evaluate(lab, None, self.root, [1], [])
            with unittest.mock.patch.object(grade, "run_all", side_effect=Refused("not built")), self.assertRaises(Refused):
                grade.evaluate(lab, None, self.root, [1], [])
        self.assertEqual(found["score"], 0)
        self.assertIn("could not be judged (ValueError); tell who teaches", found["output"])
        self.assertIn("Traceback", err.getvalue())


class Packing(Tree):
    def test_an_autograder_builds_all_programs_of_its_lab(self):
        programs = self.root / "programs"
        for path in [programs / "git", self.root / "scripts/bundle_deps.sh"]:
            path.parent.mkdir()
            path.write_text("#!/bin/sh\n[ $1 = archive ] && exec tar -c -T /dev/null; mkdir $2\n", encoding="utf-8")
            path.chmod(0o755)
        for number in ["08", "37"]:
            packed = self.root / f"{number}.zip"
            subprocess.run(["bash", self.root / "labs/autograder.sh", number, packed], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
            with zipfile.ZipFile(packed) as archive:
                chapters = re.search("LADDER_ONLY_CHAPTERS='(.*)'", archive.read("setup.sh").decode())[1]
            for target in judge.targets(find(number, self.root)):
                self.assertRegex(target.partition("ch" if target.startswith("ch") else "lab_")[2], chapters)


class Building(Tree):
    def test_two_first_checks_in_one_folder(self):
        """One configures and builds; the other waits."""
        folder, within, most = self.root / "build/cpu", [], []

        def run(words, **_):
            within.append(words)
            most.append(len(within))
            time.sleep(0.1)
            within.remove(words)
            return unittest.mock.Mock(returncode=0)

        with unittest.mock.patch.object(build.subprocess, "run", side_effect=run), contextlib.redirect_stdout(io.StringIO()) as out:
            threads = [threading.Thread(target=build.Build(self.root, folder).prepare, args=([f"lab_{i}"],)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((len(most), max(most)), (4, 1))
        self.assertIn("waiting for another lab.py", out.getvalue())


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
        self.assertIn("is no number", self.refused("answer", "08.1", "many"))
        self.assertIn("no exercise 99.9", self.refused("answer", "99.9", "1"))
        self.assertIn("required: --results", self.refused("grade", "08"))
        for seed in ["-1", str(1 << 63), "9" * 5000, "x", "\u00b2"]:
            for words in [["check", "08"], ["watch", "08"], ["bug", "08", "1"], ["grade", "08", "--results", "x"]]:
                self.assertIn("legal is a whole number from 0 to 1000000000000000000", self.refused(*words, f"--seed={seed}"))
        self.assertIn("/dev/null", self.refused("--work", "/dev/null", "new", "01"))

    def test_an_autograder_of_what_is_not_there(self):
        for words in [[], ["08"], ["77", "/tmp/out.zip"], ["08", "/nonexistent/out.zip"]]:
            run = subprocess.run(["bash", ROOT / "labs/autograder.sh", *words], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), words)

    def test_answers_are_of_exercises(self):
        with (ROOT / "labs/answers.toml").open("rb") as file:
            known = tomllib.load(file)
        self.assertLess({"19", "20", "21", "22", "23"}, {exercise[:2] for exercise in known})
        for exercise, entry in known.items():
            chapter, number = exercise.split(".")
            (readme,) = ROOT.glob(f"chapters/{chapter}_*/README.md")
            self.assertRegex(readme.read_text(encoding="utf-8").partition("\n## Exercises\n")[2], rf"(?m)^{number}\. ★", exercise)
            self.assertEqual(set(entry), {"what", "digits", "sha256"}, exercise)

    def test_answers(self):
        for value, right in [("3.5", True), ("3.50", True), ("3.4", False), ("4", False)]:
            self.assertEqual(answers.judge("08.1", value)[0], right, value)


if __name__ == "__main__":
    unittest.main()
