#!/usr/bin/env python3
"""What test_llama.py does with a LLaMA, with a Mixtral of chapter 21. Takes the same arguments.

Where two experts have scores that differ by rounding alone, FP32 and FP64 may choose another one
each, and the loss changes by more than the tolerance. These models have no such token.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from environment import WANTED
from test_transformers import HERE, TOKENS, Ladder, Transformers, main, tolerance

CHAPTER = {"chapter": "21_moe"}
# Three layers of moe-nano, with three experts of each token.
MIXTRAL = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
           "hidden_size": 64, "intermediate_size": 64, "vocab_size": 256, "rope_theta": 10000.0,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_local_experts": 8,
           "num_experts_per_tok": 3, "sliding_window": None}
FLAGS = ["--model", "moe-nano", "--layers", "3", "--experts-per-token", "3"]
MADE = {
    "mixtral, one file": {},
    "mixtral, shards": {"shards": "200KB"},
    "mixtral, BF16": {"dtype": "bf16"},
    "mixtral, a window of the sequence": {"config": {**MIXTRAL, "sliding_window": TOKENS}},
}
REFUSED = {
    "num_experts_per_tok": (2, "num_experts_per_tok is 2, but this model has 3"),
    "rms_norm_eps": (1e-4, "rms_norm_eps is 0.0001, but Ladder computes with 1e-05"),
    "sliding_window": (TOKENS - 1, "sliding_window is 15, but this run has sequences of 16 tokens"),
    "rope_scaling": ({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
                     'rope_type in rope_scaling is "linear"'),
}
CONFUSED = ["w1 and w3 swapped", "experts in another order", "router reversed"]


class MixtralLadder(Ladder):
    def run(self, *flags, chapter="21_moe"):
        return super().run(*flags, chapter=chapter)


class Mixtral(Transformers):
    """The same of a Mixtral, whose tests have the names of those above and take their place."""

    rows = []

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Path(folder.name)
        text = cls.here / "text.txt"
        text.write_text("".join(f"{i * i} is {i} times {i}. " for i in range(1000)))
        cls.ladder = MixtralLadder(cls.programs, text)
        cls.saved, cls.saved_loss = cls.save("saved", [*FLAGS, "--lr", "0.01"], 60)
        cls.plain = cls.here / "plain"  # the same, but no checkpoint of Ladder
        cls.plain.mkdir()
        for name in ("model.safetensors", "config.json"):
            shutil.copy(cls.saved / "current" / name, cls.plain)
        cls.answers = {version: cls.ask(version) for version in WANTED}

    @classmethod
    def ask(cls, version):
        jobs = {"mixtral, trained": {"load": str(cls.saved)}}
        for how in CONFUSED:
            jobs[how] = {"load": str(cls.saved), "confuse": how}
        for name, job in MADE.items():
            jobs[name] = {"config": MIXTRAL, **job, "make": str(cls.made(version, name))}
        for key, (value, _) in REFUSED.items():
            jobs[key] = {"load": str(cls.made(version, key)), "with": {key: value},
                         "change": str(cls.plain)}
        data = {"text": str(cls.ladder.text), "tokens": TOKENS, "kind": "mixtral"}
        printed = cls.environment.run(version, HERE / "models.py",
                                      json.dumps([{**job, **data} for job in jobs.values()]))
        return dict(zip(jobs, json.loads(printed.splitlines()[-1])))

    def test_they_read_what_we_save(self):
        for version, answers in self.answers.items():
            with self.subTest(version=version):
                theirs = answers["mixtral, trained"]
                self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                self.compare("mixtral, trained", MIXTRAL, self.saved_loss, theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for version, answers in self.answers.items():
            for name, job in MADE.items():
                with self.subTest(version=version, name=name):
                    directory = self.made(version, name)
                    self.assertEqual(len(list(directory.glob("*.index.json"))), "shards" in job)
                    ours = self.ladder.loss(FLAGS, directory, **CHAPTER)
                    self.compare(name, MIXTRAL, ours, answers[name], "transformers")

    def test_every_layout_reads_it(self):
        """Chapter 21 knows one rank."""

    def test_we_refuse_what_we_do_not_compute(self):
        for version, answers in self.answers.items():
            for key, (_, message) in REFUSED.items():
                with self.subTest(version=version, key=key):
                    done, _ = self.ladder.run(*FLAGS, "--steps", "1", "--load",
                                              self.made(version, key))
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(message, done.stderr)
                    self.other(answers["mixtral, trained"], answers[key], key)

    def test_rows_in_other_places_would_be_seen(self):
        for version, answers in self.answers.items():
            for how in CONFUSED:
                with self.subTest(version=version, how=how):
                    self.other(answers["mixtral, trained"], answers[how], how)

    def other(self, one, another, what):
        """The loss is another, by more than rounding."""
        self.assertGreater(abs(one["f64"] - another["f64"]), tolerance(MIXTRAL, one["f64"]), what)


if __name__ == "__main__":
    sys.exit(main(Mixtral))
