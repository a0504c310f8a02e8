#!/usr/bin/env python3
"""The fits of chapter 34: laws that were planted are found."""

import json
import math
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT

sys.path.append(str(ROOT / "chapters/34_scaling"))
import law  # noqa: E402
import study  # noqa: E402

LAW = {"E": 1.2, "A": 40, "alpha": 0.35, "B": 60, "beta": 0.3}


def planted(loss_of):
    runs = [{"N": study.parameters(*size), "D": steps * study.TOKENS} for size in study.SIZES for steps in (300, 1000, 4000)]
    return [{**run, "loss": loss_of(run)} for run in runs]


class Scaling(unittest.TestCase):
    def test_a_planted_law_of_loss(self):
        *runs, held_out = planted(lambda run: law.loss_of(LAW, run))
        found = law.fit(runs)
        for name, value in LAW.items():
            self.assertAlmostEqual(found[name] / value, 1, places=4)
        self.assertAlmostEqual(law.loss_of(found, held_out), held_out["loss"], places=6)

    def test_losses_that_rise_with_tokens_have_none(self):
        self.assertIsNone(law.fit(planted(lambda run: 1 + run["D"] / 1e6 + run["N"] / 1e6)))

    def test_a_planted_best_size(self):
        N = [2.0**k for k in range(14, 21)]
        best, loss = law.least(N, [1.5 + 0.03 * math.log(n / 1e5)**2 for n in N])
        self.assertAlmostEqual(best / 1e5, 1, places=6)
        self.assertAlmostEqual(loss, 1.5, places=9)
        self.assertIsNone(law.least(N, [3 - 0.01 * math.log(n)**2 for n in N]), "bent the other way")
        self.assertIsNone(law.least(N[:4], [1.5 + 0.03 * math.log(n / 1e6)**2 for n in N[:4]]), "beyond all runs")
        self.assertIsNone(law.least(N[:2], [1, 2]))

    def test_a_planted_power(self):
        k, a = law.power([1e11, 3e11, 1e12], [2 * C**0.5 for C in (1e11, 3e11, 1e12)])
        self.assertAlmostEqual(k, 2, places=6)
        self.assertAlmostEqual(a, 0.5, places=9)

    def test_the_law_of_the_tree_is_as_it_was_written(self):
        """Chapter 23's tests read it."""
        kept = ROOT / "chapters/34_scaling/law.json"
        with tempfile.TemporaryDirectory() as folder:
            law.write(Path(folder, "law.json"), json.loads(kept.read_text()))
            self.assertEqual(Path(folder, "law.json").read_text(), kept.read_text())
        self.assertEqual(set(json.loads(kept.read_text())), set(LAW))

    def test_parameters_are_those_of_products(self):
        """All of tiny, but for the embeddings, gains and biases."""
        gains_and_biases = 4 * 13 * 128 + 2 * 128
        self.assertEqual(study.parameters(128, 4), 867072 - 256 * 128 - 64 * 128 - gains_and_biases)


if __name__ == "__main__":
    unittest.main()
