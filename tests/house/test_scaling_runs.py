#!/usr/bin/env python3
"""The fit of chapters/23_planner/scaling_runs.py finds a law that is there."""

import importlib.util
import unittest

from house import ROOT

SPEC = importlib.util.spec_from_file_location("scaling_runs", ROOT / "chapters/23_planner/scaling_runs.py")
scaling_runs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scaling_runs)

LAW = {"E": 1.2, "A": 40, "alpha": 0.35, "B": 60, "beta": 0.3}


def planted():
    """The runs of the script, with the losses of LAW."""
    runs = [{"N": scaling_runs.size(layers, channels), "D": steps * 1024}
            for layers, _, channels, steps in scaling_runs.RUNS]
    for run in runs:
        run["loss"] = scaling_runs.loss_of(LAW, run)
    return runs


class Fit(unittest.TestCase):
    def test_a_planted_law(self):
        *runs, held_out = planted()
        law = scaling_runs.fit(runs)
        for name, value in LAW.items():
            self.assertAlmostEqual(law[name] / value, 1, places=6)
        self.assertAlmostEqual(scaling_runs.loss_of(law, held_out), held_out["loss"], places=9)

    def test_losses_that_rise_with_tokens_have_none(self):
        runs = planted()[:-1]
        for run in runs:
            run["loss"] = 1 + run["D"] / 1e6 + run["N"] / 1e6
        self.assertIsNone(scaling_runs.fit(runs))

    def test_parameters_are_those_of_the_program(self):
        self.assertEqual(scaling_runs.size(4, 128), 867072 - 2 * 256 * 128 - 64 * 128)


if __name__ == "__main__":
    unittest.main()
