"""Texts that tokenizers are tested with, the same bytes on every machine; and the program's answers.

tests/clients/test_tokens.py compares these answers with those of tokenizers and tiktoken, and
test_hashes.py with hashes of what they agreed on.
"""

import json
import struct
import subprocess
from array import array
from pathlib import Path

SPLITS = ("gpt2", "llama3", "cl100k")


class Random:
    """A generator of our own: Python's may draw other numbers in another version."""

    def __init__(self, seed):
        self.state = seed * 2 + 1

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) * n >> 31

    def choice(self, items):
        return items[self.below(len(items))]


# What patterns treat differently: contractions, white space of all kinds, marks, other alphabets,
# numbers that are no digits, letters of new versions of Unicode, characters of four bytes.
WORDS = ["'s", "'S", "'\u017f", "'re", "'LL", "'", "''", "don't", "a", "the", "aaa", "Z", "\u00e9", "e\u0301", "\u4e2d\u6587",
         "\u0915\u094d", "1", "12345", "\u00bd", "\u2167", "\u0663", "!", "?!", "...", "_", "\U0001f600", "\u200d", "\ufeff", "<|endoftext|>",
         "\U0001e900", "\U0002ebf0", "\u1c89", "\ua7cb", "\U00010d40", "\U00016d70", "\u0130", "\u212a", "\0", "\x7f"]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\x0b", "\x1c", "\u2028",
          "\u180e", "\u200b", " \n ", "\n  "]


def code_point(random):
    """Any that can be written, the lower planes more often."""
    code = random.below(random.choice([0x80, 0x250, 0x3000, 0x10000, 0x30000, 0x110000]))
    return "?" if 0xD800 <= code < 0xE000 else chr(code)


def string(random):
    """A random one of up to 30 parts."""
    kinds = [lambda: random.choice(WORDS), lambda: random.choice(SPACES), lambda: code_point(random)]
    return "".join(random.choice(kinds)() for _ in range(random.below(30)))


def corpus(random):
    """A small text in which many pairs are equally frequent."""
    letters = random.choice(["ab", "abc", "a", "abcdef ", "aab \u00e9\u4e2d", "xyz' \n1"])
    words = ["".join(random.choice(letters) for _ in range(1 + random.below(8)))
             for _ in range(1 + random.below(20))]
    return "".join(random.choice(words) + random.choice([" ", " ", "", "\n", "  "])
                   for _ in range(1 + random.below(60)))


class Program:
    """ch24_tokenizer, in a folder of its own."""

    def __init__(self, path, folder):
        self.path, self.folder = Path(path).resolve(), Path(folder)

    def run(self, *words):
        done = subprocess.run([self.path, *map(str, words)], cwd=self.folder, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.decode()}")
        return done.stdout.decode()

    def train(self, text, vocab, *flags, out="tokenizer"):
        (self.folder / "corpus.txt").write_bytes(text.encode())
        self.run("train", "--data", "corpus.txt", "--vocab", vocab, "--out", out, "--show", 0, *flags)
        root = json.loads((self.folder / out / "tokenizer.json").read_text())
        return [tuple(merge) for merge in root["model"]["merges"]]

    def encode(self, strings, tokenizer, *flags):
        """The ids of each, without the end of text. None of them may be empty."""
        with open(self.folder / "strings.jsonl", "w", encoding="ascii") as lines:
            lines.writelines(json.dumps({"text": text}) + "\n" for text in strings)
        self.run("encode", "--tokenizer", tokenizer, "--data", "strings.jsonl", "--out", "ids.bin",
                 "--format", "megatron", "--tokens", "uint32", *flags)
        index = (self.folder / "ids.idx").read_bytes()
        assert index[:9] == b"MMIDIDX\0\0" and index[17] == 4
        (count,) = struct.unpack_from("<Q", index, 18)
        lengths = struct.unpack_from(f"<{count}i", index, 34)
        ids = array("I", (self.folder / "ids.bin").read_bytes())
        found, at = [], 0
        for length in lengths:
            found.append(list(ids[at:at + length - 1]))
            at += length
        return found
