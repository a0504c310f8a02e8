#!/usr/bin/env python3
"""scripts/measure.py: what a line on the machine says."""

import sys
import unittest

from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from measure import machine  # noqa: E402

CORE = """processor\t: {}
cpu family\t: 25
model\t\t: {}
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f
"""


class Machine(unittest.TestCase):
    def test_generations_of_one_name_differ(self):
        info = CORE.format(0, 17) + "\n" + CORE.format(1, 17) + "\n"
        self.assertTrue(machine(info).startswith("AMD EPYC (family 25, model 17), "))
        self.assertTrue(machine(info).endswith(" cores, AVX-512"))
        self.assertNotEqual(machine(info), machine(CORE.format(0, 2)))

    def test_without_a_family(self):
        self.assertTrue(machine("processor\t: 0\nFeatures\t: fp asimd\n").startswith("?, "))

    def test_this_one(self):
        self.assertIn(" cores, ", machine())


if __name__ == "__main__":
    unittest.main()
