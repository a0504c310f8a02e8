#!/usr/bin/env python3
"""check_glossary.py is checked: words that nobody uses, words that stand there twice, types that
nobody explains."""

import tempfile
import unittest
from pathlib import Path

import check_glossary


class Glossary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.plant("docs/glossary.md", "# Words\n\n- **micro-batch**: m.\n- **`Arena`, leaf**: a.\n")
        self.plant("common/a.h", "// Micro-batches lie in an Arena; leaves.\n")

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def assert_caught(self, *faults):
        self.assertEqual(check_glossary.check(self.root), list(faults))

    def test_healthy(self):
        self.plant("common/a.h", "int micro_batch; // Arena, leaf\n")
        self.assert_caught()

    def test_a_word_that_nobody_says(self):
        self.plant("common/a.h", "// micro-batching and arenas, cloverleaf\n")
        self.assert_caught("docs/glossary.md: nobody says micro-batch",
                           "docs/glossary.md: nobody says leaf")

    def test_a_word_twice(self):
        self.plant("common/a.h", "// micro-batch Arena leaf\n")
        self.plant("docs/glossary.md", "- **micro-batch**: a\n- **leaf, Micro-batch**: b\n")
        self.assert_caught("docs/glossary.md: Micro-batch stands there twice")

    def test_no_glossary(self):
        (self.root / "docs/glossary.md").unlink()
        self.assert_caught("docs/glossary.md: missing, or without words")

    def types(self, text):
        self.plant("common/a.h", "// micro-batch Arena leaf\n")
        self.plant("kernels/t.h", text)
        return check_glossary.check(self.root)

    def test_a_type_that_nobody_explains(self):
        for head in ["struct A", "class [[nodiscard]] A final : public B", "enum class A : int",
                     "template <class T>\nstruct A"]:
            with self.subTest(head):
                text = f'// Types.\n#include "x.h"\nnamespace ladder {{\n{head} {{}};\n}}\n'
                self.assertEqual(self.types(text),
                                 ["kernels/t.h: A is not in the glossary, and has no ///"])

    def test_types_that_are_explained(self):
        for text in ["// T.\nnamespace ladder {\nclass Arena {};\n}", "// A: what it is.\nstruct A {};\n",
                     "// T.\n/// What it is.\nstruct A {};\n",
                     "// T.\n/// What it is.\ntemplate <class T>\nstruct A {};\n"]:
            with self.subTest(text):
                self.assertEqual(self.types(text), [])

    def test_types_that_are_no_matter_of_others(self):
        for text in ["// T.\nclass A;\n", "// T.\nnamespace {\nstruct A {};\n}\n",
                     "// T.\n/// B.\nstruct B {\n  struct A {};\n};\n",
                     "// T.\ntemplate <class T>\nstruct A<T*> {};\n"]:
            with self.subTest(text):
                self.assertEqual(self.types(text), [])


if __name__ == "__main__":
    unittest.main()
