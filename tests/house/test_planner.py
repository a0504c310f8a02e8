#!/usr/bin/env python3
"""The scripts that hold chapter 23 against runs of this machine: rates are found that are there, tables of
programs are read, and a device file has every field."""

import importlib.util
import sys
import tomllib
import unittest

from house import ROOT

sys.path.append(str(ROOT / "scripts"))  # measure.py of a chapter imports that of scripts/


spec = importlib.util.spec_from_file_location("planner", ROOT / "chapters/23_planner/proof/measure.py")
planner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planner)
BENCH_COMM = """| ranks are | ranks | operation | reduction | bytes | us | algorithm GB/s | bus GB/s |
|---|---|---|---|---|---|---|---|
| thread | 2 | all_reduce | halving | 64 | 28.6 | 0.00221 | 0.00221 |
| thread | 2 | all_reduce | halving | 8388608 | 900.0 | 9.32 | 9.5 |
"""


class ThisMachine(unittest.TestCase):
    def test_planted_rates_are_found(self):
        rows = [[4, 1, 1, 1], [1, 4, 1, 2], [1, 1, 4, 3], [1, 1, 1, 9], [2, 3, 5, 1]]
        rates = [0.5, 0.25, 2, 4]
        seconds = [sum(amount / rate for amount, rate in zip(row, rates)) for row in rows]
        for got, rate in zip(planner.least_squares(rows, seconds, [0.1] * 4), rates):
            self.assertAlmostEqual(got * rate, 1, places=6)
        self.assertEqual(planner.least_squares([[1, 1], [1, 2]], [0.1, 0.2], [0.5, 0.01])[0], 0.5)  # its ceiling

    def test_tables_are_read(self):
        self.assertEqual(planner.link_of(BENCH_COMM), {"rate": 9.5, "microseconds": 14.3})
        ranks = [{"rank": 9, "Param": {"measured": n, "predicted": 0}, "Grad": {"measured": 1, "predicted": 0}}
                 for n in (3, 7, 5)]
        self.assertEqual(planner.most_bytes({"memory": ranks}), 8)

    def test_a_device_file_has_each_field_once(self):
        fields = lambda text: {(section, field) for section, of in tomllib.loads(text).items() if section != "name"
                               for field in of}
        h100 = (ROOT / "chapters/23_planner/devices/h100.toml").read_text()
        self.assertEqual(fields(planner.toml(planner.FIELDS)), fields(h100))

    def test_half_a_machine_has_half_its_rates(self):
        ceiling = {"fma": 200, "gemm": 190, "gemm_bf16": 380, "copy": 50}
        found, taken = [[1, 0.1, 1, 1], [0.1, 1, 1, 1], [0.1, 0.1, 9, 1], [0.1, 0.1, 1, 9]], [6, 4, 2, 2]
        whole, half = (planner.fitted("bf16", found, taken, ceiling, {"rate": 5, "microseconds": 9}, n)
                       for n in (1, 2))
        for field in whole:
            parts = 2 if field.startswith(("peak", "memory", "cache.gigabytes")) else 1
            self.assertAlmostEqual(whole[field], half[field] * parts, msg=field)
        self.assertAlmostEqual(whole["peak.bf16"], 0.4)

    def test_judged_runs_fit_the_cores_and_are_no_calibration(self):
        calibration = {" ".join(flags.split()) for flags in planner.CALIBRATION}
        self.assertGreaterEqual(len(planner.JUDGED), 12)
        for chapter, both, own, layout in planner.JUDGED:
            run = planner.Judged(chapter, both, own, layout)
            gpus = int(layout.split("--gpus ")[1].split()[0])
            self.assertEqual(gpus * int(run.flags.split("--threads ")[1]), planner.CORES)
            self.assertNotIn(both.replace(" --precision bf16", ""), calibration)
            for flag in ("--recompute", "--precision", "--micro-batch"):
                self.assertEqual(run.plan.count(flag), 1, run.plan)


if __name__ == "__main__":
    unittest.main()
