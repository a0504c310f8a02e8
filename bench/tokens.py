#!/usr/bin/env python3
"""Trains and encodes a text with ch24_tokenizer and with programs of others, in turns.

    bench/tokens.py [--build build/cpu] [--text runs/bible.txt] [--rounds 5]

The others are tokenizers, tiktoken, gigatoken and rustbpe of PyPI, as far as this Python has them.
All read the tokenizer that ch24_tokenizer has trained, and must give its ids. Seconds are processor
time of all threads: of ours with the file read and the tokens written, of the others of the call
alone. A row is the median of the rounds, and their range.
"""

import argparse
import importlib.util
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

VOCAB = 8192
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def timed(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def ours(program, text, folder):
    """Seconds of training and of encoding, and the ids."""
    def run(*words):
        printed = subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
        return float(re.search(r"([0-9.]+) s of processor time", printed)[1])
    trained = run("train", "--data", text, "--vocab", str(VOCAB), "--out", folder, "--show", "0")
    encoded = run("encode", "--tokenizer", folder, "--data", text, "--out", f"{folder}/ids.bin")
    return trained, encoded, array("H", Path(folder, "ids.bin").read_bytes())[:-1].tolist()


# Each is a process of its own, so that every first call is one: prints seconds of training, or -, of
# encoding, of encoding again, and whether the ids are equal.
def tokenizers(text, folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    trained, _ = timed(lambda: made.train_from_iterator([text], trainer))
    loaded = Tokenizer.from_file(f"{folder}/tokenizer.json")
    return trained, lambda: loaded.encode(text).ids


def tiktoken(text, folder):
    import base64

    import tiktoken
    lines = Path(folder, "ranks.tiktoken").read_text().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
    encoding = tiktoken.Encoding("trained", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return None, lambda: encoding.encode_ordinary(text)


def gigatoken(text, folder):
    import gigatoken
    loaded = gigatoken.Tokenizer(f"{folder}/tokenizer.json")
    return None, lambda: loaded.encode(text)


def rustbpe(text, folder):
    import rustbpe
    return timed(lambda: rustbpe.Tokenizer().train_from_iterator([text], VOCAB - 1, pattern=PATTERN))[0], None


PEERS = {function.__name__: function for function in (tokenizers, tiktoken, gigatoken, rustbpe)}


def peer(name, text, folder):
    trained, encode = PEERS[name](Path(text).read_text(), folder)
    print(trained or "-")
    if encode:
        wanted = array("H", Path(folder, "ids.bin").read_bytes())[:-1].tolist()
        first, ids = timed(encode)
        print(first, timed(encode)[0], [int(i) for i in ids] == wanted)


def row(name, rounds, size):
    """Seconds of training, and MB/s of the first call and of the second."""
    cells = [name]
    for column, unit in enumerate(("{:.2f} s", "{:.1f} MB/s", "{:.1f} MB/s")):
        seen = [one[column] for one in rounds if one[column]]
        seen = [size / 1e6 / seconds if column else seconds for seconds in seen]
        numbers = [unit.format(f(seen)) for f in (statistics.median, min, max)] if seen else []
        cells.append("{} ({} to {})".format(*numbers) if numbers else "")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--text", type=Path, default=Path("runs/bible.txt"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer[0], args.text, args.peer[1])
    found = {name: [] for name in ("ch24_tokenizer", *PEERS) if name == "ch24_tokenizer" or importlib.util.find_spec(name)}
    one_thread = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            trained, encoded, _ = ours(args.build / "bin/ch24_tokenizer", args.text, folder)
            found["ch24_tokenizer"].append((trained, encoded, None))
            for name in list(found)[1:]:
                words = [sys.executable, __file__, "--text", args.text, "--peer", name, folder]
                trained, *call = subprocess.run(words, check=True, capture_output=True, text=True,
                                                env=one_thread).stdout.split()
                if call and call[2] != "True":
                    sys.exit(f"tokens.py: {name} gives other ids")
                found[name].append((None if trained == "-" else float(trained), *(map(float, call[:2]) if call else (None, None))))
    print("| program | training | encoding, first call | again |\n|---|--:|--:|--:|")
    for name, rounds in found.items():
        print(row(name, rounds, args.text.stat().st_size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
