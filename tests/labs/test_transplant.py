#!/usr/bin/env python3
"""What the grader takes of a student's file, and what it tells a person of: without a compiler."""

import time
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import cheats
from house_of_labs import ROOT
from engine.labs import all_labs, find, mutated, stub
from engine import transplant
from engine.transplant import NotTaken, demand_closed, look_at, merged, read

ZERO1, LATE = "chapters/08_zero1/zero1.h", "labs/08x_late_gather/late_gather.h"
FINISH = 'throw std::logic_error("Zero1::wait is not written yet");'


def plain(text):
    """Its words, without what tells the compiler whose line it is."""
    return " ".join(line for line in text.split("\n") if not line.startswith(("#line ", "#pragma begin_", "#pragma end_"))).split()


def finish(body):
    """A stub of lab 08 with a body."""
    return stub(find("08", ROOT), ZERO1).replace(FINISH, body)


def written(text, call):
    """What call(path) returns of a file with this text."""
    with TemporaryDirectory() as folder:
        mine = Path(folder) / "zero1.h"
        mine.write_bytes(text if isinstance(text, bytes) else text.encode())
        return call(mine)


def left_out(lab, path, text):
    return written(text, lambda mine: transplant.left_out(lab, path, mine))


class Taken(unittest.TestCase):
    def merged(self, text, number="08", path=ZERO1):
        return merged(find(number, ROOT), path, text)

    def test_every_lab_by_its_stub_and_its_reference(self):
        for lab in all_labs():
            for path in lab.files:
                for text in (stub(lab, path), read(ROOT / path)):
                    whole = merged(lab, path, text)
                    demand_closed(whole, whole, path)
                    self.assertEqual(plain(whole), text.split(), path)
                    self.assertEqual([*written(text, lambda mine: transplant.left_out(lab, path, mine)), *look_at(lab, path, text)], [], path)

    def test_what_people_write(self):
        for body in [
            "const auto half = [&](int64_t n) { return n / 2; }; half(1'000'000);",
            "const char* text = \"# } %: \\\" /* ??\"; char c = '#', d = '\\'', e = '}'; // # } [[ asm",
            "std::vector<::ladder::Tensor> all; int a[3] = {1, 2, 3}; a[a[0]] %= 2; bool b = a[0]<::ladder::kAlign;",
            "double x = 1.e-3 / *&bucket_; auto s = u8\"ü\"; /* naïve: # */ for (;;) { break; }",
        ]:
            self.assertIn(body, self.merged(finish(body)))
            self.assertEqual(written(finish(body).replace("\n", "\r\n"), read), finish(body))

    def test_a_line_is_told_by_the_number_that_the_student_sees(self):
        text = "// mine\n\n" + finish("one();\n    two();")
        line = next(i for i, line in enumerate(text.split("\n"), 1) if "void wait(" in line)
        self.assertIn(f'#line {line} "zero1.h"\n\n    one();', self.merged(text))

    def test_nothing_outside_of_bodies(self):
        """What a submission says there never reaches the compiler."""
        cheat = cheats.all_cheats()["another word for without_idea"]
        lab, text = find(cheat.lab, ROOT), cheat.files[ZERO1]
        self.assertEqual(plain(self.merged(text)), plain(self.merged(cheats.mutant("08", "all_reduced", ZERO1))))
        self.assertRegex(left_out(lab, ZERO1, text)[0], r"line \d+: stands outside of the bodies")

    def test_a_member_in_front_of_a_function_is_told(self):
        text = finish(FINISH).replace("private:\n", "private:\n  int mine_ = 0;\n").replace("  void start(", "  int more_ = 0; void start(")
        self.assertIn("stands outside", left_out(find("08", ROOT), ZERO1, text)[0])

    def test_members_where_the_file_has_a_place(self):
        lab = find("08x", ROOT)
        member = "  std::vector<Pending> pending_;\n  void more() { pending_.clear(); }\n"
        text = stub(lab, LATE).replace("  // end of yours", member + "  // end of yours")
        self.assertIn(member, merged(lab, LATE, text))
        self.assertEqual(left_out(lab, LATE, text), [])
        for wrong in ["};\nstruct Mine {\n", "struct Mine {\n"]:
            whole = merged(lab, LATE, text.replace(member, wrong))
            with self.assertRaises(NotTaken):
                demand_closed(whole, whole, LATE)


class Refused(unittest.TestCase):
    def test_a_body_cannot_end_before_its_end(self):
        self.assertNotIn("more", merged(find("08", ROOT), ZERO1, finish("} void more() {")))
        self.assertNotIn("more", merged(find("08", ROOT), ZERO1, finish("} }; struct More {")))
        with self.assertRaisesRegex(NotTaken, "or a brace before it is missing"):
            merged(find("08", ROOT), ZERO1, finish("{"))

    def test_nor_after_preprocessing(self):
        """A macro with a brace, one behind #if, and ends that a comment or a string hides: as the compiler sees them."""
        push, pop = "do { Cleanup __clframe", "__clframe.set(0); } while (0)"
        for body, seen in [("PUSH; POP;", "PUSH; POP;"), ("<% X; %>", "<% X; %>"), ("char c = '}';", "char c = '}';")]:
            whole = merged(find("08", ROOT), ZERO1, finish(body))
            demand_closed(whole, whole.replace(body, seen.replace("PUSH", push).replace("POP", pop)), ZERO1)
        for body, seen in [
            ("PUSH; do { POP; do { POP; } while (0); } int mine; void more() { PUSH; } while (0);", None), ("{ POP; X }", None), ("PUSH;", None),
            ("\n#if 0\n}\n#endif\n {", " {"), ('x("', 'R"('), ("y;", "/*"),
        ]:  # fmt: skip
            whole = merged(find("08", ROOT), ZERO1, finish("BODY")).replace("BODY", body)
            with self.assertRaisesRegex(NotTaken, "closes a brace that it has not opened"):
                demand_closed(whole, whole.replace(body, (seen or body).replace("PUSH", push).replace("POP", pop)), ZERO1)

    def test_a_function_that_is_not_there(self):
        text = finish("").replace("void wait(const Ctx& ctx, Tensor grads)", "void wait(const Ctx& ctx, Tensor all)")
        with self.assertRaisesRegex(NotTaken, "the function that begins with `void wait .*` is not there"):
            merged(find("08", ROOT), ZERO1, text)

    def test_another_encoding(self):
        """Latin-1 in a comment costs nothing, and is told; UTF-16 has no function that we would find."""
        text = finish("x(); // na\u00efve").encode("latin-1")
        self.assertIn("x(); // na\u00efve", merged(find("08", ROOT), ZERO1, written(text, read)))
        self.assertEqual(left_out(find("08", ROOT), ZERO1, text), ["zero1.h: is not UTF-8; it is read as Latin-1, which costs no points"])
        self.assertEqual(left_out(find("08", ROOT), ZERO1, finish("").encode("utf-16")), ["zero1.h: is no text in UTF-8"])

    def test_a_file_of_one_sign_takes_no_time(self):
        begin = time.monotonic()
        for sign in ["/*", '"', 'R"(', "'", "\n", "{"]:
            transplant.tokens(sign * ((1 << 20) // len(sign)))
        self.assertLess(time.monotonic() - begin, 30)


class LookAt(unittest.TestCase):
    def test_words_that_no_lab_needs(self):
        lab = find("08", ROOT)
        for line in ["reinterpret_cast<int&>(x);", "stdin;", "extern int x;", 'asm("nop");', '__asm__("nop");', "std::exit(0);", "::_exit(0);", "std::quick_exit(0);", "pthread_exit(0);",
                     "std::abort();", 'std::fopen("x", "w");', 'open_it("/proc/self/mem");', "pthread_cleanup_pop(0);", "#define count 1", "%: define count 1", "ex\\", "lab::Sheet* sheet;"]:  # fmt: skip
            text = finish(f"one();\n{line}\n")
            number = next(i for i, one in enumerate(text.split("\n"), 1) if one == line)
            found = look_at(lab, ZERO1, text)
            self.assertEqual(len(found), 1, line)
            self.assertRegex(found[0], rf"^zero1.h, line {number}: .*: ")
            self.assertTrue(found[0].endswith(line), found)

    def test_what_people_write(self):
        for body in ['throw std::runtime_error("no exit: # stdin");', "// std::exit(0)", "const char c = '#'; existing.open_ = 1;", "std::vector<float> all(3); for (const auto& x : all) sum += x;"]:
            self.assertEqual(look_at(find("08", ROOT), ZERO1, finish(body)), [])
        for path in find("cuda_sum", ROOT).files:  # kernels need words of CUDA; no other file does
            text = stub(find("cuda_sum", ROOT), path).replace('throw std::logic_error("warp_sum is not written yet");', "__syncwarp(); x = __shfl_down_sync(0, x, 1);\n__asm__;")
            self.assertEqual([line.split(": ")[1] for line in look_at(find("cuda_sum", ROOT), path, text)], ["__asm__"])

    def test_no_more_than_a_person_reads(self):
        begin = time.monotonic()
        found = look_at(find("08", ROOT), ZERO1, finish("stdin;\n" * 100000))
        self.assertEqual(found[-1], "zero1.h: and 99950 lines more")
        self.assertLess(time.monotonic() - begin, 30)


class Mutants(unittest.TestCase):
    def test_errors_that_people_make_are_taken(self):
        """Of chapters, whose mutants change bodies alone."""
        for lab in (lab for lab in all_labs() if not lab.is_extension):
            for mutant in lab.mutants:
                changed = {path: text for path, text in mutated(lab, mutant).items() if text != read(ROOT / path)}
                for path, text in changed.items():
                    if mutant.name == "gradient_not_summed":  # a parameter of it has lost its name
                        self.assertRegex("".join(left_out(lab, path, text)), "^(.* is not there|)$")
                        continue
                    self.assertEqual(plain(merged(lab, path, text)), text.split())
                    of_the_chapter = "reinterpret_cast<const char*>(numbers.data())"  # of 25, in another line than the chapter's
                    self.assertEqual([line for line in look_at(lab, path, text) if of_the_chapter not in line], [], mutant.name)


if __name__ == "__main__":
    unittest.main()
