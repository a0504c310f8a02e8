#!/usr/bin/env python3
"""check_formulas.py is checked: what GitHub would lose is found, and nothing else."""

import tempfile
import unittest
from pathlib import Path

import check_formulas


class Formulas(unittest.TestCase):
    def faults(self, text):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "page.md").write_text(text, encoding="utf-8")
            return check_formulas.check(Path(folder))

    def test_what_is_lost(self):
        for formula in [r"$B\,T$", r"$\|g\|$", r"$$a \\ b$$", r"$$\{a$$", "$$\na\\;b\n$$"]:
            self.assertTrue(self.faults(f"Say {formula} then.\n"), formula)

    def test_what_is_not(self):
        for text in [r"$B\ T$", r"$\Vert g\Vert$", "`$a\\,b$`", "```math\na \\\\ b\n```", r"\$3 \* 4", r"$a$ \* $b$"]:
            self.assertEqual(self.faults(text + "\n"), [], text)


if __name__ == "__main__":
    unittest.main()
