#!/usr/bin/env python3
"""Real clients read what we save, and we read what they save: Hugging Face's transformers.

    test_transformers.py --build build/cpu              skipped (status 77) unless installed
    test_transformers.py --build build/cpu --install    installs them in build/clients first

A loss is compared with that of transformers computed in FP64, on the tokens of our validation. FP32
rounds n times on the longest way through a model, each time by at most eps = 2^-24 of a value, in
either direction: the tolerance is four standard deviations of such a walk, 4 sqrt(n) eps, times the
loss. Controls hold that what is refused would be seen by it.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from environment import TRANSFORMERS, enter, run

ARGS = enter("", TRANSFORMERS, result="")  # a file for the table of losses
import models  # noqa: E402
from models import TOKENS, tolerance  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from measure import commit, machine  # noqa: E402

# Three layers of nano: 16 positions, bytes.
SMALL = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": 16, "vocab_size": 256,
         "tie_word_embeddings": False}
SMALL_FLAGS = ["--model", "nano", "--layers", "3", "--heads", "4", "--channels", "64"]
# The vocabulary of GPT-2, whose rows are padded here; positions that are not all used.
WIDE = {**SMALL, "n_layer": 1, "n_positions": 1024, "vocab_size": 50257}
WIDE_FLAGS = ["--model", "gpt2-124m", "--layers", "1", "--heads", "4", "--channels", "64",
              "--seq-len", str(TOKENS)]
TIED = "--tied-head"
LAYOUTS = {"10_zero3": ["--ranks", "2"], "11_tensor_parallel": ["--ranks", "2", "--tp", "2"],
           "12_pipeline_parallel": ["--ranks", "3", "--pp", "3"]}

TITLE = """# Losses here and in Hugging Face's transformers

`scripts/nightly.sh --part clients`. A model goes from one to the other through its files, in the
direction that the table names, and both take the mean loss of the same tokens.
`tests/clients/test_transformers.py` derives the tolerance.

"""


def tied(config):
    return {**config, "tie_word_embeddings": True}


class Ladder:
    def __init__(self, text, chapter):
        self.text, self.chapter = text, chapter

    def run(self, *flags, chapter=None):
        """The finished process, and the report, if it wrote one."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            done = subprocess.run(
                [ARGS.programs / f"ch{chapter or self.chapter}", "--data", self.text, "--threads", "1",
                 "--quiet", "--report", report, *flags], capture_output=True, text=True)
            return done, json.loads(report.read_text()) if report.exists() else None

    def trained(self, *flags, **how):
        """The validation loss of a run that must succeed."""
        done, report = self.run(*flags, **how)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return report["val_loss"]

    def loss(self, flags, directory, **how):
        """The validation loss of weights in a directory."""
        return self.trained(*flags, "--steps", "1", "--lr", "0", "--batch", "4", "--load", directory, **how)


class Transformers(unittest.TestCase):
    """A GPT-2. Tests of other models are the same with other data."""

    KIND, CHAPTER, CONFIG, FLAGS, STEPS = "gpt2", "02_adamw", SMALL, SMALL_FLAGS, 150
    # What is trained here: the config, flags and steps that are others than above.
    SAVED = {"trained": {}, "trained, head tied": {"config": tied(SMALL), "flags": [*SMALL_FLAGS, TIED]},
             "trained, 50,257 tokens": {"config": WIDE, "flags": [*WIDE_FLAGS, "--batch", "2"], "steps": 2}}
    # What transformers save, and how: name -> job for models.py.
    MADE = {
        "one file": {},
        "shards": {"shards": "100KB"},
        "BF16, shards": {"shards": "100KB", "dtype": "bf16"},
        "F16": {"dtype": "f16"},
        "head tied": {"config": tied(SMALL)},
        "without a head": {"config": tied(SMALL), "without_head": True},
        "50,257 tokens": {"config": WIDE, "flags": WIDE_FLAGS},
    }
    LAID_OUT = "BF16, shards"  # every layout reads it
    # What config.json may say while the weights fit: key -> that, what the refusal says, and
    # whether it is another function: transformers finds a head and does not tie it.
    REFUSED = {
        "n_head": ({"n_head": 8}, "n_head is 8, but this model has 4", True),
        "activation_function": ({"activation_function": "relu"},
                                'is "relu", but Ladder computes with "gelu_new"', True),
        "layer_norm_epsilon": ({"layer_norm_epsilon": 1e-2},
                               "layer_norm_epsilon is 0.01, but Ladder computes with 1e-05", True),
        "scale_attn_weights": ({"scale_attn_weights": False},
                               "scale_attn_weights is false, but Ladder computes with true", True),
        "scale_attn_by_inverse_layer_idx": ({"scale_attn_by_inverse_layer_idx": True},
                                            "is true, but Ladder computes with false", True),
        "tie_word_embeddings": ({"tie_word_embeddings": True}, "lm_head.weight is not the embedding", False),
    }
    CONFUSED = []  # rows in other places, which the loss would show: "confuse" of models.py

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here, cls.rows = Path(folder.name), []  # of the result: version, who saved, what, losses, tolerance
        cls.losses = {}  # of what is trained here
        text = cls.here / "text.txt"
        text.write_text("".join(f"{i * i} is {i} times {i}. " for i in range(1000)))
        cls.ladder = Ladder(text, cls.CHAPTER)
        for name, how in cls.SAVED.items():
            cls.losses[name] = cls.ladder.trained(*how.get("flags", cls.FLAGS), "--lr", "0.01", "--steps",
                                                  str(how.get("steps", cls.STEPS)), "--save", cls.here / name)
        cls.first = next(iter(cls.SAVED))
        cls.plain = cls.here / "plain"  # the same, but no checkpoint of Ladder
        cls.plain.mkdir()
        for name in ("model.safetensors", "config.json"):
            shutil.copy(cls.here / cls.first / "current" / name, cls.plain)
        data = {"text": text, "tokens": TOKENS, "kind": cls.KIND, "config": cls.CONFIG}
        cls.answers = {  # name -> what models.py says
            **{name: models.load(cls.here / name, data) for name in cls.SAVED},
            **{how: models.load(cls.here / cls.first, {**data, "confuse": how}) for how in cls.CONFUSED},
            **{name: models.make(cls.made(name), {**data, **job}) for name, job in cls.MADE.items()},
            **{key: models.load(cls.made(key), {**data, "with": change, "change": cls.plain})
               for key, (change, _, _) in cls.REFUSED.items()}}

    @classmethod
    def made(cls, name):
        return cls.here / f"{name} by them"

    def compare(self, what, config, ours, theirs, saved_by):
        allowed = tolerance(config, theirs["f64"])
        self.rows.append((theirs["version"], saved_by, what, ours, theirs["f64"], allowed))
        self.assertLessEqual(abs(ours - theirs["f64"]), allowed, what)
        self.assertLessEqual(abs(theirs["f32"] - theirs["f64"]), allowed, f"{what}: their own FP32")

    def other(self, one, another, what):
        """The loss is another, by more than rounding."""
        self.assertGreater(abs(one["f64"] - another["f64"]), tolerance(self.CONFIG, one["f64"]), what)

    def test_they_read_what_we_save(self):
        for name in self.SAVED:
            with self.subTest(name):
                theirs, config = self.answers[name], self.SAVED[name].get("config", self.CONFIG)
                self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                self.assertEqual(theirs["tied"], config["tie_word_embeddings"])
                self.assertEqual(theirs["generated"], 4)
                self.compare(name, config, self.losses[name], theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for name in self.MADE:
            with self.subTest(name):
                directory, job = self.made(name), {"config": self.CONFIG, "flags": self.FLAGS, **self.MADE[name]}
                self.assertEqual(len(list(directory.glob("*.index.json"))), "shards" in job)
                ours = self.ladder.loss(job["flags"], directory)
                self.compare(name, job["config"], ours, self.answers[name], "transformers")
                self.assertEqual(self.answers[name]["tied"], job["config"]["tie_word_embeddings"])
                if self.answers[name]["tied"]:
                    self.assertEqual(self.ladder.loss([*job["flags"], TIED], directory), ours,
                                     "a head that is the embedding, and a copy of it")

    def test_every_layout_reads_it(self):
        made = self.made(self.LAID_OUT)
        wanted = self.ladder.loss(self.FLAGS, made)
        for chapter, flags in LAYOUTS.items():
            self.assertEqual(self.ladder.loss([*self.FLAGS, *flags], made, chapter=chapter), wanted, chapter)

    def test_we_refuse_what_we_do_not_compute(self):
        for key in self.REFUSED:
            with self.subTest(key):
                _, message, seen = self.REFUSED[key]
                done, _ = self.ladder.run(*self.FLAGS, "--steps", "1", "--load", self.made(key))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                if seen:  # what is refused would not go unseen
                    self.other(self.answers[self.first], self.answers[key], key)

    def test_rows_in_other_places_would_be_seen(self):
        for how in self.CONFUSED:
            with self.subTest(how):
                self.other(self.answers[self.first], self.answers[how], how)

    @classmethod
    def table(cls):
        yield "| transformers | saved by | model | loss here | loss there, FP64 | tolerance |"
        yield "|---|---|---|---|---|---|"
        for version, saved_by, what, ours, theirs, allowed in cls.rows:
            yield (f"| {version} | {saved_by} | {what} | {ours:.7f} | {theirs:.7f} "
                   f"| {allowed:.1e} |")


def main(tests):
    run(tests)
    table = "\n".join(tests.table()) + "\n"
    print(table)
    if ARGS.result:
        Path(ARGS.result).write_text(f"{TITLE}Machine: {machine()}. Commit {commit()}.\n\n{table}")


if __name__ == "__main__":
    main(Transformers)
