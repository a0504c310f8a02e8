#!/usr/bin/env python3
"""A folder with a model and its tokenizer: AutoTokenizer and AutoModelForCausalLM of transformers 4 and
5 open what --save wrote, and --load trains on a text with what they wrote. Takes the arguments of
test_transformers.py.
"""

import os
import sys

from environment import WANTED
from test_llama import LLAMA, LLAMA_FLAGS
from test_mixtral import FLAGS as MIXTRAL_FLAGS, MIXTRAL
from test_transformers import HERE, OWN_HEAD, SMALL, SMALL_FLAGS, Ladder, Transformers, main

sys.path.insert(0, str(HERE.parent / "24_tokenizer"))
from cases import Program, Random, string  # noqa: E402

VOCAB = 400
# kind -> its config, flags, chapter, class, steps
MODELS = {"gpt2": ({**SMALL, **OWN_HEAD}, SMALL_FLAGS, "02_adamw", "GPT2LMHeadModel", 100),
          "llama": (LLAMA, LLAMA_FLAGS, "02_adamw", "LlamaForCausalLM", 100),
          "mixtral": (MIXTRAL, MIXTRAL_FLAGS, "21_moe", "MixtralForCausalLM", 40)}


class Folders(Transformers):
    rows = []

    @classmethod
    def setUpClass(cls):
        cls.begin(Ladder)
        os.environ["LADDER_CACHE"] = str(cls.here / "kept")
        text = cls.ladder.text.read_text() + "It's  don't\n\n  caf\u00e9, \u4e2d\u6587 \U0001f600!\n" * 20
        cls.ladder.text.write_text(text)
        random = Random(3)
        cls.strings = [s for s in (string(random) for _ in range(500)) if s and "<|endoftext|>" not in s]
        cls.tokenizer = cls.here / "bpe"
        cls.program = Program(cls.programs / "ch24_tokenizer", cls.here)
        cls.program.train(text, VOCAB, out=cls.tokenizer)
        cls.saved = {kind: cls.save_kind(kind) for kind in MODELS}  # its directory, its loss
        cls.answers = {version: cls.ask(version) for version in WANTED}

    @classmethod
    def save_kind(cls, kind):
        _, flags, chapter, _, steps = MODELS[kind]
        done, report = cls.ladder.run(*flags, "--tokenizer", cls.tokenizer, "--lr", "0.01", "--steps", str(steps),
                                      "--save", cls.here / kind, chapter=chapter)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return cls.here / kind, report["val_loss"]

    @classmethod
    def jobs(cls, version):
        for kind, (directory, _) in cls.saved.items():
            yield kind, {"open": str(directory), "strings": cls.strings}
        for kind, (config, *_) in MODELS.items():
            yield f"made {kind}", {"make": str(cls.made(version, kind)), "kind": kind,
                                   "config": {**config, "vocab_size": VOCAB}, "tokenizer": str(cls.tokenizer)}

    def test_they_read_what_we_save(self):
        ours = self.program.encode([self.ladder.text.read_text(), *self.strings], self.tokenizer)
        for version, answers in self.answers.items():
            for kind, (_, loss) in self.saved.items():
                with self.subTest(version=version, kind=kind):
                    theirs, config = answers[kind], {**MODELS[kind][0], "vocab_size": VOCAB}
                    self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                    self.assertEqual(theirs["model"], MODELS[kind][3])
                    self.assertEqual(theirs["ends"], [VOCAB - 1] * 3)
                    self.assertEqual(theirs["size"], VOCAB)
                    self.assertTrue(theirs["back"])
                    self.assertEqual(theirs["ids"], ours)
                    self.compare(f"{kind} on tokens", config, loss, theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for version, answers in self.answers.items():
            for kind, (config, flags, chapter, *_) in MODELS.items():
                with self.subTest(version=version, kind=kind):
                    loss = self.ladder.loss(flags, self.made(version, kind), chapter=chapter)
                    self.compare(f"{kind} on tokens", {**config, "vocab_size": VOCAB}, loss, answers[f"made {kind}"],
                                 "transformers")

    def test_every_layout_reads_it(self):
        """The ranks share a file of tokens: tests/24_tokenizer/chapters.cpp."""

    def test_we_refuse_what_we_do_not_compute(self):
        """The same with a tokenizer as without."""


if __name__ == "__main__":
    sys.exit(main(Folders))
