#!/usr/bin/env python3
"""Real clients read what we save, and we read what they save: Hugging Face's transformers 4 and 5.

    test_transformers.py --build build/cpu              skipped (status 77) unless installed
    test_transformers.py --build build/cpu --install    installs them in build/clients first

A loss is compared with that of transformers computed in FP64, on the tokens of our validation. FP32
rounds n times on the longest way through a model, each time by at most eps = 2^-24 of a value, in
either direction: the tolerance is four standard deviations of such a walk, 4 sqrt(n) eps, times the
loss. Controls hold that what is refused would be seen by it.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from environment import WANTED, Environment, Unavailable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
from measure import commit, machine  # noqa: E402

SKIPPED = 77
EPS = 2.0**-24
TOKENS = 16  # of each sequence
# Three layers of nano: 16 positions, bytes.
SMALL = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": 16, "vocab_size": 256}
SMALL_FLAGS = ["--model", "nano", "--layers", "3", "--heads", "4", "--channels", "64"]
# The vocabulary of GPT-2, whose rows are padded here; positions that are not all used.
WIDE = {**SMALL, "n_layer": 1, "n_positions": 1024, "vocab_size": 50257}
WIDE_FLAGS = ["--model", "gpt2-124m", "--layers", "1", "--heads", "4", "--channels", "64",
              "--seq-len", str(TOKENS)]
OWN_HEAD = {"tie_word_embeddings": False}
TIED = "--tied-head"
# What transformers save, and how: name -> job for models.py.
MADE = {
    "one file": {"config": {**SMALL, **OWN_HEAD}},
    "shards": {"config": {**SMALL, **OWN_HEAD}, "shards": "100KB"},
    "BF16, shards": {"config": {**SMALL, **OWN_HEAD}, "shards": "100KB", "dtype": "bf16"},
    "F16": {"config": {**SMALL, **OWN_HEAD}, "dtype": "f16"},
    "head tied": {"config": SMALL},
    "without a head": {"config": SMALL, "without_head": True},
    "50,257 tokens": {"config": {**WIDE, **OWN_HEAD}, "flags": WIDE_FLAGS},
}
# What config.json may say while the weights fit: key -> value, and what the refusal says.
REFUSED = {
    "n_head": (8, "n_head is 8, but this model has 4"),
    "activation_function": ("relu", 'is "relu", but Ladder computes "gelu_new"'),
    "layer_norm_epsilon": (1e-2, "layer_norm_epsilon is 0.01, but Ladder computes with 1e-05"),
    "scale_attn_weights": (False, "scale_attn_weights is false, but Ladder computes with true"),
    "scale_attn_by_inverse_layer_idx": (True, "is true, but Ladder computes with false"),
    "tie_word_embeddings": (True, "lm_head.weight is not the embedding"),
}
LAYOUTS = {"10_zero3": ["--ranks", "2"], "11_tensor_parallel": ["--ranks", "2", "--tp", "2"],
           "12_pipeline_parallel": ["--ranks", "3", "--pp", "3"]}

TITLE = """# Losses here and in Hugging Face's transformers

`scripts/nightly.sh --part clients`. A model goes from one to the other through its files, in the
direction that the table names, and both take the mean loss of the same tokens.
`tests/clients/test_transformers.py` derives the tolerance.

"""


def tolerance(config, loss):
    """See above. Of a layer: two norms, qkv, scores, values, projection, and the MLP's two."""
    T, V = TOKENS, config["vocab_size"]
    C = config.get("n_embd", config.get("hidden_size"))
    L = config.get("n_layer", config.get("num_hidden_layers"))
    F = config.get("intermediate_size", 4 * C)
    roundings = L * (2 * C + C + C + T + C + C + F) + 2 * C + V
    return 4 * math.sqrt(roundings) * EPS * loss


class Ladder:
    def __init__(self, programs, text):
        self.programs, self.text = Path(programs), text

    def run(self, *flags, chapter="02_adamw"):
        """The finished process, and the report, if it wrote one."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            done = subprocess.run(
                [self.programs / f"ch{chapter}", "--data", self.text, "--threads", "1", "--quiet",
                 "--report", report, *flags], capture_output=True, text=True)
            return done, json.loads(report.read_text()) if report.exists() else None

    def loss(self, flags, directory, **how):
        """The validation loss of weights in a directory."""
        done, report = self.run(*flags, "--steps", "1", "--lr", "0", "--batch", "4", "--load",
                                directory, **how)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return report["val_loss"]


class Transformers(unittest.TestCase):
    """What all tests share is made once: each start of transformers takes seconds."""

    rows = []  # for the result: version, who saved, what, our loss, theirs, tolerance
    KIND = "gpt2"

    @classmethod
    def begin(cls, ladder):
        """A folder, a text, and the programs that train on it."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Path(folder.name)
        text = cls.here / "text.txt"
        text.write_text("".join(f"{i * i} is {i} times {i}. " for i in range(1000)))
        cls.ladder = ladder(cls.programs, text)

    @classmethod
    def setUpClass(cls):
        cls.begin(Ladder)
        cls.saved, cls.saved_loss = cls.save("saved", [*SMALL_FLAGS, "--lr", "0.01"], 150)
        cls.wide, cls.wide_loss = cls.save("wide", [*WIDE_FLAGS, "--batch", "2"], 2)
        cls.tied, cls.tied_loss = cls.save("tied", [*SMALL_FLAGS, TIED, "--lr", "0.01"], 150)
        cls.answers = {version: cls.ask(version) for version in WANTED}

    @classmethod
    def save(cls, name, flags, steps):
        directory = cls.here / name
        done, report = cls.ladder.run(*flags, "--steps", str(steps), "--save", directory)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return directory, report["val_loss"]

    @classmethod
    def ask(cls, version):
        """All answers of one version: name -> what models.py says."""
        jobs = dict(cls.jobs(version))
        data = {"text": str(cls.ladder.text), "tokens": TOKENS, "kind": cls.KIND}
        printed = cls.environment.run(version, HERE / "models.py",
                                      json.dumps([{**data, **job} for job in jobs.values()]))
        return dict(zip(jobs, json.loads(printed.splitlines()[-1])))

    @classmethod
    def jobs(cls, version):
        yield "trained", {"load": str(cls.saved)}
        yield "trained, head tied", {"load": str(cls.tied)}
        yield "trained, 50,257 tokens", {"load": str(cls.wide)}
        for name, job in MADE.items():
            yield name, {**job, "make": str(cls.made(version, name))}
        for key, (value, _) in REFUSED.items():
            yield key, {"load": str(cls.made(version, key)), "with": {key: value},
                        "change": str(cls.made(version, "one file"))}

    @classmethod
    def made(cls, version, name):
        return cls.here / f"{name} by {version}"

    def compare(self, what, config, ours, theirs, saved_by):
        allowed = tolerance(config, theirs["f64"])
        self.rows.append((theirs["version"], saved_by, what, ours, theirs["f64"], allowed))
        self.assertLessEqual(abs(ours - theirs["f64"]), allowed, what)
        self.assertLessEqual(abs(theirs["f32"] - theirs["f64"]), allowed, f"{what}: their own FP32")

    def test_they_read_what_we_save(self):
        for version, answers in self.answers.items():
            for what, config, ours in (("trained", SMALL, self.saved_loss),
                                       ("trained, head tied", SMALL, self.tied_loss),
                                       ("trained, 50,257 tokens", WIDE, self.wide_loss)):
                with self.subTest(version=version, what=what):
                    theirs = answers[what]
                    self.assertTrue(theirs["version"].startswith(version))
                    self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                    self.assertEqual(theirs["tied"], "tied" in what)
                    self.assertEqual(theirs["generated"], 4)
                    self.compare(what, config, ours, theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for version, answers in self.answers.items():
            for name, job in MADE.items():
                with self.subTest(version=version, name=name):
                    directory = self.made(version, name)
                    self.assertEqual(len(list(directory.glob("*.index.json"))), "shards" in job)
                    ours = self.ladder.loss(job.get("flags", SMALL_FLAGS), directory)
                    self.compare(name, job["config"], ours, answers[name], "transformers")
                    if OWN_HEAD.items() <= job["config"].items():
                        continue
                    self.assertTrue(answers[name]["tied"])
                    tied = self.ladder.loss([*SMALL_FLAGS, TIED], directory)
                    self.assertEqual(tied, ours, "a head that is the embedding, and a copy of it")

    def test_every_layout_reads_it(self):
        name = "BF16, shards"
        for version in WANTED:
            directory = self.made(version, name)
            wanted = self.ladder.loss(SMALL_FLAGS, directory)
            for chapter, flags in LAYOUTS.items():
                with self.subTest(version=version, chapter=chapter):
                    found = self.ladder.loss([*SMALL_FLAGS, *flags], directory, chapter=chapter)
                    self.assertEqual(found, wanted)

    def test_we_refuse_what_we_do_not_compute(self):
        for version, answers in self.answers.items():
            for key, (_, message) in REFUSED.items():
                with self.subTest(version=version, key=key):
                    done, _ = self.ladder.run(*SMALL_FLAGS, "--steps", "1", "--load",
                                              self.made(version, key))
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(message, done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    if key != "tie_word_embeddings":  # 5 finds the head and does not tie it
                        self.control(answers, key)

    def control(self, answers, key):
        """What is refused would not go unseen: the loss is another."""
        ours, theirs = answers["one file"]["f64"], answers[key]["f64"]
        self.assertGreater(abs(ours - theirs), tolerance(SMALL, ours), f"control {key}")

    @classmethod
    def table(cls):
        yield "| transformers | saved by | model | loss here | loss there, FP64 | tolerance |"
        yield "|---|---|---|---|---|---|"
        for version, saved_by, what, ours, theirs, allowed in cls.rows:
            yield (f"| {version} | {saved_by} | {what} | {ours:.7f} | {theirs:.7f} "
                   f"| {allowed:.1e} |")


def main(tests):
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True, help="with bin/ch02_adamw")
    parser.add_argument("--install", action="store_true", help="what is missing, from PyPI")
    parser.add_argument("--result", type=Path, help="a file for the table of losses")
    args = parser.parse_args()
    Transformers.programs = args.build / "bin"
    Transformers.environment = Environment(args.build.resolve().parent / "clients")
    try:
        Transformers.environment.require(args.install)
    except Unavailable as e:
        print(f"SKIPPED: {e}")
        return SKIPPED
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    done = unittest.TextTestRunner(verbosity=2).run(suite)
    table = "\n".join(tests.table()) + "\n"
    print(table)
    if args.result and done.wasSuccessful():
        args.result.write_text(f"{TITLE}Machine: {machine()}. Commit {commit()}.\n\n{table}")
    return 0 if done.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(Transformers))
