#!/usr/bin/env python3
"""What test_transformers.py does with a GPT-2, with a LLaMA. Takes the same arguments."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from environment import WANTED
from test_transformers import HERE, LAYOUTS, TIED, TOKENS, Ladder, Transformers, main, tolerance

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
                   'rope_type in rope_scaling is "linear"', "45"),
    "two thetas": ({"rope_theta": THETA, "rope_parameters": PLAIN},
                   "rope_theta is 500000.0, but this model has 10000.0", "4"),
    "theta inside": ({"rope_theta": 10000.0, "rope_parameters": {**PLAIN, "rope_theta": THETA}},
                     "rope_theta in rope_parameters is 500000.0", "5"),
    "hidden_act": ({"hidden_act": "gelu"}, 'hidden_act is "gelu", but Ladder computes with "silu"',
                   "45"),
}
CONFUSED = ["interleaved RoPE", "gate and up swapped", "groups in another order"]


class Llama(Transformers):
    """The same of a LLaMA, whose tests have the names of those above and take their place."""

    rows = []

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Path(folder.name)
        text = cls.here / "text.txt"
        text.write_text("".join(f"{i * i} is {i} times {i}. " for i in range(1000)))
        cls.ladder = Ladder(cls.programs, text)
        cls.saved, cls.saved_loss = cls.save("saved", [*LLAMA_FLAGS, "--lr", "0.01"], 150)
        cls.plain = cls.here / "plain"  # the same, but no checkpoint of Ladder
        cls.plain.mkdir()
        for name in ("model.safetensors", "config.json"):
            shutil.copy(cls.saved / "current" / name, cls.plain)
        cls.tied, cls.tied_loss = cls.save("tied", [*LLAMA_FLAGS, TIED, "--lr", "0.01"], 150)
        cls.answers = {version: cls.ask(version) for version in WANTED}

    @classmethod
    def ask(cls, version):
        jobs = {"llama, trained": {"load": str(cls.saved)},
                "llama, trained, head tied": {"load": str(cls.tied)}}
        for how in CONFUSED:
            jobs[how] = {"load": str(cls.saved), "confuse": how}
        for name, job in MADE_LLAMAS.items():
            jobs[name] = {"config": LLAMA, **job, "make": str(cls.made(version, name))}
        for key, (change, _, _) in REFUSED_LLAMAS.items():
            jobs[key] = {"load": str(cls.made(version, key)), "with": change,
                         "change": str(cls.plain)}
        data = {"text": str(cls.ladder.text), "tokens": TOKENS, "kind": "llama"}
        printed = cls.environment.run(version, HERE / "models.py",
                                      json.dumps([{**job, **data} for job in jobs.values()]))
        return dict(zip(jobs, json.loads(printed.splitlines()[-1])))

    def test_they_read_what_we_save(self):
        for version, answers in self.answers.items():
            for what, ours in (("llama, trained", self.saved_loss),
                               ("llama, trained, head tied", self.tied_loss)):
                with self.subTest(version=version, what=what):
                    theirs = answers[what]
                    self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                    self.assertEqual(theirs["tied"], "tied" in what)
                    self.compare(what, LLAMA, ours, theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for version, answers in self.answers.items():
            for name, job in MADE_LLAMAS.items():
                with self.subTest(version=version, name=name):
                    directory = self.made(version, name)
                    self.assertEqual(len(list(directory.glob("*.index.json"))), "shards" in job)
                    ours = self.ladder.loss(LLAMA_FLAGS, directory)
                    self.compare(name, LLAMA, ours, answers[name], "transformers")
                    if "config" in job:
                        tied = self.ladder.loss([*LLAMA_FLAGS, TIED], directory)
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
            for key, (_, message, versions) in REFUSED_LLAMAS.items():
                with self.subTest(version=version, key=key):
                    done, _ = self.ladder.run(*LLAMA_FLAGS, "--steps", "1", "--load",
                                              self.made(version, key))
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(message, done.stderr)
                    if version in versions:
                        self.other(answers["llama, trained"], answers[key], key)

    def test_rows_in_other_places_would_be_seen(self):
        for version, answers in self.answers.items():
            for how in CONFUSED:
                with self.subTest(version=version, how=how):
                    self.other(answers["llama, trained"], answers[how], how)

    def other(self, one, another, what):
        """The loss is another, by more than rounding."""
        self.assertGreater(abs(one["f64"] - another["f64"]), tolerance(LLAMA, one["f64"]), what)


if __name__ == "__main__":
    sys.exit(main(Llama))
