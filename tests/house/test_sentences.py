#!/usr/bin/env python3
"""check_sentences.py is checked: what counts as a sentence, and pages that may have long ones."""

import tempfile
import unittest
from pathlib import Path

import check_sentences

LONG = "word " * 41


class Sentences(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def faults(self, text):
        self.plant("docs/page.md", text)
        return check_sentences.check(self.root)

    def test_a_long_sentence(self):
        self.assertEqual(self.faults(f"Short. {LONG}. Short."), ["docs/page.md: 41 words: " + LONG[:70] + "..."])

    def test_what_ends_a_sentence(self):
        half = "word " * 30
        for between in [". ", "? ", ".) ", "\n\n", "\n- ", "\n2. ", " | ", "\n```\n```\n", "\n# "]:
            self.assertEqual(self.faults(half + between + half + "\n"), [], repr(between))
        for between in [", ", "; ", ": ", "\n", " 1.5 "]:
            self.assertEqual(len(self.faults(half + between + half + "\n")), 1, repr(between))

    def test_what_is_one_word(self):
        name = "`" + "a " * 60 + "`"
        self.assertEqual(self.faults(f"{name} is [one](a/b) $x + y$.\n```\n{LONG}\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
