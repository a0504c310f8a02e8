#!/usr/bin/env python3
"""A folder with a model and its tokenizer: AutoTokenizer and AutoModelForCausalLM of transformers
open what --save wrote, and --load trains on a text with what they wrote. Takes the arguments of
test_transformers.py.
"""

import sys

from test_llama import LLAMA, LLAMA_FLAGS
from test_mixtral import MIXTRAL, MIXTRAL_FLAGS
from test_transformers import HERE, SMALL, SMALL_FLAGS, Transformers, main

sys.path.insert(0, str(HERE.parent / "24_tokenizer"))
from cases import Program, Random, string  # noqa: E402

VOCAB = 400
# kind -> its config, flags, chapter, class, steps
MODELS = {"gpt2": (SMALL, SMALL_FLAGS, "02_adamw", "GPT2LMHeadModel", 100),
          "llama": (LLAMA, LLAMA_FLAGS, "02_adamw", "LlamaForCausalLM", 100),
          "mixtral": (MIXTRAL, MIXTRAL_FLAGS, "21_moe", "MixtralForCausalLM", 40)}
CONFIGS = {kind: {**config, "vocab_size": VOCAB} for kind, (config, *_) in MODELS.items()}


class Folders(Transformers):
    @classmethod
    def setUpClass(cls):
        cls.begin()
        text = cls.ladder.text.read_text() + "It's  don't\n\n  caf\u00e9, \u4e2d\u6587 \U0001f600!\n" * 20
        cls.ladder.text.write_text(text)
        random = Random(3)
        cls.strings = [s for s in (string(random) for _ in range(500)) if s and "<|endoftext|>" not in s]
        cls.tokenizer = cls.here / "bpe"
        cls.program = Program(cls.programs / "ch24_tokenizer", cls.here)
        cls.program.train(text, VOCAB, out=cls.tokenizer)
        for kind, (_, flags, chapter, _, steps) in MODELS.items():
            cls.save(kind, *flags, "--tokenizer", cls.tokenizer, "--lr", "0.01", "--steps", str(steps), chapter=chapter)
        cls.answers = cls.ask()

    @classmethod
    def jobs(cls):
        for kind, config in CONFIGS.items():
            yield kind, {"open": str(cls.here / kind), "strings": cls.strings}
            yield f"made {kind}", {"make": str(cls.made(kind)), "kind": kind, "config": config,
                                   "tokenizer": str(cls.tokenizer)}

    def test_they_read_what_we_save(self):
        ours = self.program.encode([self.ladder.text.read_text(), *self.strings], self.tokenizer)
        for kind in MODELS:
            with self.subTest(kind):
                theirs = self.answers[kind]
                self.assertEqual(theirs["wrong"], {}, "missing or unexpected tensors")
                self.assertEqual(theirs["model"], MODELS[kind][3])
                self.assertEqual(theirs["ends"], [VOCAB - 1] * 3)
                self.assertEqual(theirs["size"], VOCAB)
                self.assertTrue(theirs["back"])
                self.assertEqual(theirs["ids"], ours)
                self.compare(f"{kind} on tokens", CONFIGS[kind], self.losses[kind], theirs, "Ladder")

    def test_we_read_what_they_save(self):
        for kind in MODELS:
            with self.subTest(kind):
                _, flags, chapter, *_ = MODELS[kind]
                loss = self.ladder.loss(flags, self.made(kind), chapter=chapter)
                self.compare(f"{kind} on tokens", CONFIGS[kind], loss, self.answers[f"made {kind}"], "transformers")

    def test_every_layout_reads_it(self):
        """The ranks share a file of tokens: tests/24_tokenizer/chapters.cpp."""

    def test_we_refuse_what_we_do_not_compute(self):
        """The same with a tokenizer as without."""


if __name__ == "__main__":
    sys.exit(main(Folders))
