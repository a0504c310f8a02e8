#!/usr/bin/env python3
"""check_cpp.py is checked: what it must find, and what it must leave in peace."""

import tempfile
import unittest
from pathlib import Path

import check_cpp


class Cpp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def faults_of(self, **files):
        """Of files a and b: C++ in two headers, one in kernels/ and one in chapters/."""
        for name, text in files.items():
            self.plant({"a": "kernels/a.h", "b": "chapters/b.h"}[name], text)
        return check_cpp.check(self.root)

    def test_two_types_of_one_name(self):
        for kind in ["struct Slots {};", "template <class T>\nclass Slots : Other<T> {};"]:
            a = f"namespace ladder {{\n{kind}\n}}"
            b = "namespace ladder {\nenum class Slots : int { A };\n}"
            self.assertEqual(
                self.faults_of(a=a, b=b),
                ["ladder::Slots has 2 definitions: chapters/b.h, kernels/a.h"],
            )

    def test_attributes_belong_to_no_name(self):
        a = "namespace ladder {\nstruct [[nodiscard]] A {};\n}"
        b = "namespace ladder {\nclass alignas(64) A {};\n}"
        self.assertIn("ladder::A has 2", self.faults_of(a=a, b=b)[0])

    def test_two_functions_of_one_name(self):
        wanted = ["ladder::test::at(int,const Map<int, int>&) has 2 definitions: chapters/b.h, kernels/a.h"]
        a = "inline int at(int i, const Map<int, int>& m = {}) { return i; }"
        b = "std::pair<int, F<void(int)>> at(int, const Map<int, int>&) { return {}; }"
        a, b = (f"namespace ladder::test {{\n{text}\n}}" for text in (a, b))
        self.assertEqual(self.faults_of(a=a, b=b), wanted)

    def test_functions_of_sources(self):
        text = "namespace ladder {\nvoid open(int) {}\n}"
        for name in ["common/run/backend_host.cpp", "common/run/backend_cuda.cpp"]:
            self.plant(name, text)
        self.assertEqual(check_cpp.check(self.root), [])  # one is built in place of the other
        self.plant("common/run/open.cpp", text)
        self.assertIn("ladder::open(int) has 3", check_cpp.check(self.root)[0])

    def test_two_inline_variables_of_one_name(self):
        a = "namespace ladder {\ninline constexpr int kMost = 3;\n}"
        b = "namespace ladder {\ninline constexpr Sizes kMost{3};\n}"
        self.assertIn("ladder::kMost has 2", self.faults_of(a=a, b=b)[0])

    def test_declarations_define_nothing(self):
        a = "namespace ladder {\nvoid f(const Plan& plan = {});\nclass A;\n}"
        b = "namespace ladder {\nvoid f(const Plan& plan) {}\nclass A {};\n}"
        self.assertEqual(self.faults_of(a=a, b=b), [])

    def test_names_that_differ(self):
        one = "namespace ladder {\nstruct A { struct In {}; };\nint f(int i) { return i; }\n}"
        two = 'namespace ladder {\n// struct A {};\nstruct B { struct In {}; };\nconst char* s = "struct A {";\n'
        two += "int f(float i) { return i; }\nstruct A;\n}\nnamespace { struct A {}; }"
        self.assertEqual(self.faults_of(a=one, b=two), [])

    def test_a_standard_header_is_missing(self):
        use = "int f() { return std::min(1, 2); }\n"
        self.assertEqual(self.faults_of(a=use), ["kernels/a.h: std::min wants <algorithm>"])
        self.assertEqual(self.faults_of(a="#include <algorithm>\n" + use), [])

    def test_a_header_of_ours_may_include_it(self):
        self.plant("kernels/a.h", "#include <algorithm>\n")
        use = '#include "kernels/a.h"\nint f() { return std::min(1, 2); }\n'
        self.assertEqual(self.faults_of(b=use), [])

    def test_comments_and_strings_use_nothing(self):
        self.assertEqual(self.faults_of(a='// std::min\nauto s = "std::max"; /* std::fill */\n'), [])


if __name__ == "__main__":
    unittest.main()
