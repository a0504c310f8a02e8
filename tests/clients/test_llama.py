#!/usr/bin/env python3
"""What test_transformers.py does with a GPT-2, with a LLaMA. Takes the same arguments."""

import shutil
import sys

from environment import WANTED
from test_transformers import LAYOUTS, TIED, Ladder, Transformers, main, tolerance

# Three layers of llama-nano: heads in pairs that share a key and a value.
LLAMA = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
         "hidden_size": 128, "intermediate_size": 384, "vocab_size": 256,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
LLAMA_FLAGS = ["--model", "llama-nano", "--layers", "3"]
MADE_LLAMAS = {
    "llama, one file": {},
    "llama, shards": {"shards": "200KB"},
    "llama, BF16, shards": {"shards": "200KB", "dtype": "bf16"},
    "llama, F16": {"dtype": "f16"},
    "llama, head tied": {"config": {**LLAMA, "tie_word_embeddings": True}},
    "llama without a head": {"config": {**LLAMA, "tie_word_embeddings": True},
                             "without_head": True},
}
# key -> what config.json says, what the refusal says, in which versions it is another function.
THETA = 500000.0
PLAIN = {"rope_theta": 10000.0, "rope_type": "default"}
LINEAR = {"rope_type": "linear", "factor": 4.0}
REFUSED_LLAMAS = {
    "rms_norm_eps": ({"rms_norm_eps": 1e-4},
                     "rms_norm_eps is 0.0001, but Ladder computes with 1e-05", "45"),
    "theta": ({"rope_theta": THETA, "rope_parameters": {**PLAIN, "rope_theta": THETA}},
              "rope_theta is 500000.0, but this model has 10000.0", "45"),
    "two places": ({"rope_parameters": PLAIN, "rope_scaling": LINEAR},
                   'rope_type is "linear"', "45"),
    "two thetas": ({"rope_theta": THETA, "rope_parameters": PLAIN},
                   "rope_theta is 500000.0, but this model has 10000.0", "4"),
    "theta inside": ({"rope_theta": 10000.0, "rope_parameters": {**PLAIN, "rope_theta": THETA}},
                     "rope_theta is 500000.0", "5"),
    "hidden_act": ({"hidden_act": "gelu"}, 'hidden_act is "gelu", but Ladder computes with "silu"',
                   "45"),
}
CONFUSED = ["interleaved RoPE", "gate and up swapped", "groups in another order"]


class Llama(Transformers):
    """The same of a LLaMA, whose tests have the names of those above and take their place."""

    rows = []
    LADDER, KIND, CONFIG, FLAGS, STEPS = Ladder, "llama", LLAMA, LLAMA_FLAGS, 150
    SAVED = {"llama, trained": [], "llama, trained, head tied": [TIED]}  # what is trained here: more flags
    MADE, REFUSED, CONFUSED = MADE_LLAMAS, REFUSED_LLAMAS, CONFUSED

    @classmethod
    def setUpClass(cls):
        cls.begin(cls.LADDER)
        cls.saved = {what: cls.save(what, [*cls.FLAGS, *more, "--lr", "0.01"], cls.STEPS)
                     for what, more in cls.SAVED.items()}  # its directory, its loss
        cls.first = next(iter(cls.saved))
        cls.plain = cls.here / "plain"  # the same, but no checkpoint of Ladder
        cls.plain.mkdir()
        for name in ("model.safetensors", "config.json"):
            shutil.copy(cls.saved[cls.first][0] / "current" / name, cls.plain)
        cls.answers = {version: cls.ask(version) for version in WANTED}

    @classmethod
    def jobs(cls, version):
        for what, (directory, _) in cls.saved.items():
            yield what, {"load": str(directory)}
        for how in cls.CONFUSED:
            yield how, {"load": str(cls.saved[cls.first][0]), "confuse": how}
        for name, job in cls.MADE.items():
            yield name, {"config": cls.CONFIG, **job, "make": str(cls.made(version, name))}
        for key, (change, _, _) in cls.REFUSED.items():
            yield key, {"load": str(cls.made(version, key)), "with": change, "change": str(cls.plain)}

    def test_they_read_what_we_save(self):
        for version, answers in self.answers.items():
            for what, (_, ours) in self.saved.items():
                with self.subTest(version=version, what=what):
                    theirs = answers[what]
                    self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                    self.assertEqual(theirs["tied"], "tied" in what)
                    self.compare(what, self.CONFIG, ours, theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for version, answers in self.answers.items():
            for name, job in self.MADE.items():
                with self.subTest(version=version, name=name):
                    directory = self.made(version, name)
                    self.assertEqual(len(list(directory.glob("*.index.json"))), "shards" in job)
                    ours = self.ladder.loss(self.FLAGS, directory)
                    self.compare(name, self.CONFIG, ours, answers[name], "transformers")
                    if job.get("config", {}).get("tie_word_embeddings"):
                        tied = self.ladder.loss([*self.FLAGS, TIED], directory)
                        self.assertEqual(tied, ours)

    def test_every_layout_reads_it(self):
        for version in WANTED:
            directory = self.made(version, "llama, BF16, shards")
            wanted = self.ladder.loss(LLAMA_FLAGS, directory)
            for chapter, flags in LAYOUTS.items():
                with self.subTest(version=version, chapter=chapter):
                    found = self.ladder.loss([*LLAMA_FLAGS, *flags], directory, chapter=chapter)
                    self.assertEqual(found, wanted)

    def test_we_refuse_what_we_do_not_compute(self):
        for version, answers in self.answers.items():
            for key, (_, message, versions) in self.REFUSED.items():
                with self.subTest(version=version, key=key):
                    done, _ = self.ladder.run(*self.FLAGS, "--steps", "1", "--load",
                                              self.made(version, key))
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(message, done.stderr)
                    if version in versions:
                        self.other(answers[self.first], answers[key], key)

    def test_rows_in_other_places_would_be_seen(self):
        for version, answers in self.answers.items():
            for how in self.CONFUSED:
                with self.subTest(version=version, how=how):
                    self.other(answers[self.first], answers[how], how)

    def other(self, one, another, what):
        """The loss is another, by more than rounding."""
        self.assertGreater(abs(one["f64"] - another["f64"]), tolerance(self.CONFIG, one["f64"]), what)


if __name__ == "__main__":
    sys.exit(main(Llama))
