#!/usr/bin/env python3
"""Merges and ids of ch24_tokenizer, by their hashes: what tests/clients/test_tokens.py has found equal
to the peers', held on machines without them.

    test_hashes.py --program build/cpu/bin/ch24_tokenizer            compares with hashes.json
    test_hashes.py --program build/cpu/bin/ch24_tokenizer --write    writes it: first run the clients' test
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

from cases import SPLITS, Program, Random, corpus, string

HASHES = Path(__file__).with_name("hashes.json")
STRINGS, CORPORA = 40000, 40


def digest(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def found(ours):
    """Name -> hash. The same cases as the clients' test has, the corpora its first ones."""
    hashes, random = {}, Random(2)
    merges = []
    for _ in range(CORPORA):
        text, vocab = corpus(random), 258 + random.below(120)
        merges.append(ours.train(text, vocab))
    hashes["merges of random corpora"] = digest(merges)
    random = Random(1)
    strings = [text for text in (string(random) for _ in range(STRINGS)) if text]
    text = "".join(strings[:2000])
    for ties in ("hf", "bytes", "cs336"):
        hashes[f"merges of strings, ties {ties}"] = digest(ours.train(text, 1000, "--ties", ties))
    for split in SPLITS:
        ours.train(text, 2000, "--split", split)
        hashes[f"ids of strings, split {split}"] = digest(ours.encode(strings, "tokenizer"))
        hashes[f"ids with special tokens, split {split}"] = digest(
            ours.encode(strings[:5000], "tokenizer", "--allow-special"))
        long = [character * 1000000 for character in ("a", " ", "1", "\n", "!", "\u4e2d")]
        hashes[f"ids of a million, split {split}"] = digest(ours.encode(long, "tokenizer", "--threads", 2))
    return hashes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hashes = found(Program(args.program, folder))
    if args.write:
        HASHES.write_text(json.dumps(hashes, indent=1) + "\n")
        return 0
    wanted = json.loads(HASHES.read_text())
    wrong = [name for name in wanted | hashes if wanted.get(name) != hashes.get(name)]
    for name in wrong:
        print(f"{name}: {hashes.get(name)}, but the peers agree on {wanted.get(name)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
