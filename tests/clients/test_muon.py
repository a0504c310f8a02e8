#!/usr/bin/env python3
"""torch.optim.Muon beside ours: 20 steps from the same weights, on the same batches.

    test_muon.py --build build/cpu              skipped (status 77) unless torch is installed
    test_muon.py --build build/cpu --install    installs it in build/clients first

scripts/golden.py has the model, in double. torch's Newton-Schulz is BF16, which is far off, so the same in
double takes its place. What is left is FP32's error, which is ours:

- of a loss: n roundings on the longest way through the model, each by at most eps = 2^-24 in either direction.
  Four standard deviations of such a walk are 4 sqrt(n) eps of the loss;
- of the weights: an update is off by one eps of its norm in each of five steps of Newton-Schulz. The steps that
  follow make that 3.4445-fold at most, each of them: by the sum of 3.4445^k eps in all. Such an error points
  in any of P directions, and the loss sees one, that of the gradient: 4 |g| / sqrt(P) of it. Errors of updates
  add up as a walk.

The controls are mistakes, and torch as it is.
"""

import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rounding
from environment import enter, run

ARGS = enter("muon", ["torch>=2.15", "numpy"])
import numpy  # noqa: E402
import torch  # noqa: E402
from torch.optim._muon import _zeropower_via_newtonschulz  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import golden  # noqa: E402

GROWTH = sum(3.4445**k for k in range(1, 6))
RUNS = ["muon", "muon_llama"]
BAND = 1e-2  # of the loss: what BF16 may be off by


class Muon(unittest.TestCase):
    def ours(self, name, *more):
        """The losses of our program."""
        flags = [word for flag, value in self.flags(name).items() for word in (f"--{flag}", str(value))]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ARGS.programs / "ch32_optimizers", "--data", ROOT / "tests/golden/text.txt", "--quiet",
                            "--steps", "20", "--trace", f"{folder}/trace.jsonl", *flags, *more], check=True)
            lines = Path(folder, "trace.jsonl").read_text().splitlines()
        return [float.fromhex(json.loads(line)["loss"]) for line in lines]

    def flags(self, name):
        return golden.RUNS[name][1]

    def theirs(self, name, **instead):
        """Losses, and norms of gradients; `instead` of some functions of golden.py."""
        torch.set_num_threads(1)
        text = numpy.fromfile(ROOT / "tests/golden/text.txt", numpy.uint8).astype(numpy.int64)
        with mock.patch.dict(vars(golden), instead):
            return golden.train(self.flags(name), text, torch.float64)

    def bound(self, name, losses, norms):
        """See above. An update moves a weight by 0.2 of the rate, as a root mean square, or less."""
        flags = self.flags(name)
        flags = dict(zip(["layers", "heads", "channels", "seq-len"], golden.PRESETS[flags["model"]])) | flags
        hidden = golden.LLAMAS.get(flags["model"], (0, 4 * flags["channels"]))[1]
        of_loss = rounding.of_loss(flags["layers"], flags["channels"], flags["seq-len"], hidden, 256)
        of_weights = 4 * max(norms) * GROWTH * rounding.EPS * 0.2 * flags["muon-lr"] * math.sqrt(len(losses))
        return of_loss + of_weights / min(losses)

    def test_in_double(self):
        for name in RUNS:
            with self.subTest(name):
                losses, norms = self.theirs(name)
                found, bound = golden.deviation(self.ours(name), losses), self.bound(name, losses, norms)
                print(f"{name}: {found:.1e} of the loss, bound {bound:.1e}")
                self.assertLess(found, bound)

    def test_as_it_is(self):
        """In BF16 neither is within the bound. Theirs rounds as ours does, but for the last sums."""
        for name in RUNS:
            with self.subTest(name):
                exact, norms = self.theirs(name)
                bound = self.bound(name, exact, norms)
                theirs, _ = self.theirs(name, newton_schulz=_zeropower_via_newtonschulz)
                off, ours = golden.deviation(theirs, exact), golden.deviation(self.ours(name, "--newton-schulz", "bf16"), exact)
                print(f"{name} in BF16: torch {off:.1e} of the loss, ours {ours:.1e}")
                self.assertTrue(bound < off < BAND and bound < ours < BAND)

    def test_mistakes_are_far(self):
        plain = golden.pieces

        def head_too(name, w, flags):
            return [len(w)] if name == "lm_head.weight" else plain(name, w, flags)

        def unsplit(name, w, flags):
            return plain(name, w, flags) and [len(w)]

        def scaled_decay(flags, matrices):
            optimizer = muon(flags, matrices)
            for group in optimizer.param_groups:
                group["weight_decay"] *= 0.2 * math.sqrt(flags["channels"])
            return optimizer

        muon = golden.make_muon
        for name in RUNS:
            losses, norms = self.theirs(name)
            for mistake in ({"pieces": head_too}, {"pieces": unsplit}, {"make_muon": scaled_decay}):
                with self.subTest(name, mistake=mistake):
                    found = golden.deviation(self.theirs(name, **mistake)[0], losses)
                    print(f"{name}: {list(mistake.values())[0].__name__} {found:.1e}")
                    self.assertGreater(found, 5 * self.bound(name, losses, norms))


if __name__ == "__main__":
    run(Muon)
