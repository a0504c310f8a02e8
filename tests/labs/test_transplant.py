#!/usr/bin/env python3
"""What the grader takes of a student's file, and what it refuses: without a compiler."""

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import cheats
from house_of_labs import ROOT
from engine.labs import all_labs, find, mutated, stub
from engine import transplant
from engine.transplant import NotTaken, merged, read

ZERO1, LATE = "chapters/08_zero1/zero1.h", "labs/08x_late_gather/late_gather.h"
FINISH = 'throw std::logic_error("Zero1::finish is not written yet");'


def plain(text):
    """Its words, without what tells the compiler whose line it is."""
    return " ".join(line for line in text.split("\n") if not line.startswith("#line ")).split()


def finish(body):
    """A stub of lab 08 with a body."""
    return stub(find("08", ROOT), ZERO1).replace(FINISH, body)


def left_out(lab, path, text):
    with TemporaryDirectory() as folder:
        mine = Path(folder) / Path(path).name
        mine.write_bytes(text if isinstance(text, bytes) else text.encode())
        return transplant.left_out(lab, path, mine)


class Taken(unittest.TestCase):
    def merged(self, text, number="08", path=ZERO1):
        return merged(find(number, ROOT), path, text)

    def test_every_lab_by_its_stub_and_its_reference(self):
        for lab in all_labs():
            for path in lab.files:
                for text in (stub(lab, path), read(ROOT / path)):
                    self.assertEqual(plain(merged(lab, path, text)), text.split(), path)
                    self.assertEqual(left_out(lab, path, text), [])

    def test_what_people_write(self):
        for body in [
            "const auto half = [&](int64_t n) { return n / 2; }; half(1'000'000);",
            "const char* text = \"# } %: \\\" /* ??\"; char c = '#', d = '\\'', e = '}'; // # } [[ asm",
            "std::vector<::ladder::Tensor> all; int a[3] = {1, 2, 3}; a[a[0]] %= 2; bool b = a[0]<::ladder::kAlign;",
            "double x = 1.e-3 / *&bucket_; auto s = u8\"ü\"; /* naïve: # */ for (;;) { break; }",
        ]:
            self.assertIn(body, self.merged(finish(body)))
            self.assertIn(body, self.merged(finish(body).replace("\n", "\r\n")))

    def test_a_line_is_told_by_the_number_that_the_student_sees(self):
        text = "// mine\n\n" + finish("one();\n    two();")
        line = next(i for i, line in enumerate(text.split("\n"), 1) if "void finish(" in line)
        self.assertIn(f'#line {line} "zero1.h"\n{{\n    one();', self.merged(text))

    def test_nothing_outside_of_bodies(self):
        """What a submission says there never reaches the compiler."""
        for name, honest in [
            ("the reference, where the scan does not look", "stub"), ("a file of root's", "stub"), ("the reference, as the program", "stub"),
            ("another word for without_idea", "all_reduced"), ("another word for letter", "zb_h1"), ("a trace before main()", "stub"),
        ]:  # fmt: skip
            cheat = cheats.all_cheats()[name]
            lab = find(cheat.lab, ROOT)
            for path, text in cheat.files.items():
                work = stub(lab, path) if honest == "stub" else cheats.mutant(cheat.lab, honest, path)
                self.assertEqual(plain(merged(lab, path, text)), plain(merged(lab, path, work)), name)
                self.assertRegex(left_out(lab, path, text)[0], r"line \d+: stands outside of the bodies", name)

    def test_a_member_in_front_of_a_function_is_told(self):
        text = finish(FINISH).replace("private:\n", "private:\n  int mine_ = 0;\n").replace("  void start(", "  int more_ = 0; void start(")
        self.assertIn("stands outside", left_out(find("08", ROOT), ZERO1, text)[0])

    def test_members_where_the_file_has_a_place(self):
        lab = find("08x", ROOT)
        member = "  std::vector<Pending> pending_;\n  void more() { pending_.clear(); }\n"
        text = stub(lab, LATE).replace("  // end of yours", member + "  // end of yours")
        self.assertIn(member, merged(lab, LATE, text))
        self.assertEqual(left_out(lab, LATE, text), [])
        for wrong in ["#define count\n", "};\nstruct Mine {\n", "struct Mine {\n", "  asm(\"nop\");\n"]:
            with self.assertRaises(NotTaken):
                merged(lab, LATE, text.replace(member, wrong))


class Refused(unittest.TestCase):
    def refused(self, body):
        with self.assertRaises(NotTaken) as raised:
            merged(find("08", ROOT), ZERO1, finish(body))
        self.assertEqual(str(raised.exception).count("\n"), 0)
        return str(raised.exception)

    def test_what_no_body_may_hold(self):
        for body, what in [
            ("\n#include <x>\n", "#"), ("\n  %: define x\n", "%:"), ("\n??=define x\n", "a trigraph"),
            ("\n_Pra\\\ngma(\"x\")", "a line that goes on"), ("// \\ \n#define x\n", "a line that goes on"),
            ('_Pragma("GCC poison count");', "_Pragma"), ("FMT_PRAGMA_GCC(poison count)", "FMT_PRAGMA_GCC"),
            ('asm("nop");', "asm"), ('__asm__("nop");', "__asm__"), ("__REDIRECT(f, (), g);", "__REDIRECT"),
            ("int x __attribute__((unused));", "__attribute__"), ("[ /* */ [maybe_unused]] int x;", "an attribute"),
            ("<:<:maybe_unused:>:> int x;", "<:"), ("<% %>", "<%"), ('R"(})" "{";', "a raw string"),
            ("int \\u00e9;", "\\"), ("int é;", "é"), ("int $;", "$"), ("int\x0bx;", "a control character"), ('"x', '"'), ("/* x", "/*"),
        ]:  # fmt: skip
            self.assertRegex(self.refused(body), r"^zero1.h, line \d+: ", body)
            self.assertIn(f": {what}", self.refused(body))

    def test_a_body_cannot_end_before_its_end(self):
        self.assertNotIn("more", merged(find("08", ROOT), ZERO1, finish("} void more() {")))
        self.assertNotIn("more", merged(find("08", ROOT), ZERO1, finish("} }; struct More {")))
        with self.assertRaisesRegex(NotTaken, "or a brace before it is missing"):
            merged(find("08", ROOT), ZERO1, finish("{"))

    def test_a_macro_that_hides_the_assembler(self):
        for path, text in cheats.all_cheats()["the assembler, by a macro of a library"].files.items():
            with self.assertRaisesRegex(NotTaken, "__REDIRECT may not stand in a body"):
                merged(find("08", ROOT), path, text)

    def test_a_function_that_is_not_there(self):
        text = finish("").replace("void finish(const Ctx& ctx, Tensor grads)", "void finish(const Ctx& ctx, Tensor all)")
        with self.assertRaisesRegex(NotTaken, "the function that begins with `void finish .*` is not there"):
            merged(find("08", ROOT), ZERO1, text)

    def test_another_encoding(self):
        self.assertEqual(left_out(find("08", ROOT), ZERO1, b"\xff\xfe"), ["zero1.h: is not UTF-8"])


class Mutants(unittest.TestCase):
    def test_errors_that_people_make_are_taken(self):
        """Of chapters, whose mutants change bodies alone."""
        for lab in (lab for lab in all_labs() if not lab.is_extension):
            for mutant in lab.mutants():
                for path, text in mutated(lab, mutant).items():
                    if mutant.name == "gradient_not_summed":  # a parameter of it has lost its name
                        self.assertRegex("".join(left_out(lab, path, text)), "^(.* is not there|)$")
                        continue
                    self.assertEqual(plain(merged(lab, path, text)), text.split())


if __name__ == "__main__":
    unittest.main()
