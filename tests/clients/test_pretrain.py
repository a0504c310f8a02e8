#!/usr/bin/env python3
"""transformers open the model of chapter 38, and its loss on documents that were held out is ours.

    test_pretrain.py --build build/cpu                     skipped (status 77) unless installed
    test_pretrain.py --build build/cpu --install           installs them in build/clients first
    test_pretrain.py --build build/cpu --of runs/pretrain  of what scripts/pretrain.sh has made, each source

test_transformers.py derives the tolerance. The control is a copy of the folder with another epsilon in its norms.
"""

import json
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from environment import QUIET, TRANSFORMERS, called, enter, run

ARGS = enter("", TRANSFORMERS, of="")  # the folder of scripts/pretrain.sh
from models import loss_of_documents, tolerance  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "24_tokenizer"))
from cases import Program  # noqa: E402

VOCAB = 300


def our_loss(model, source, folder):
    """Chapter 26's on what it holds out of a source. The weights alone: no run goes on."""
    config, report = json.loads((model / "config.json").read_text()), folder / "report.json"
    called(ARGS.programs / "ch26_packing", *QUIET, "--load", model / "model.safetensors", "--data", source, "--tokens", "uint16",
           "--documents", "--tokenizer", model, "--model", "llama-tiny", "--layers", config["num_hidden_layers"],
           "--seq-len", config["max_position_embeddings"], "--batch", 4, "--steps", 0, "--report", report)
    return json.loads(report.read_text())["val_loss"]


def trained(folder):
    """A small run of all ideas: its model, and the one source."""
    tokenizer = Program(ARGS.programs / "ch24_tokenizer", folder)
    words, draw = "seven rivers run to the sea and it is not full".split(), random.Random(1)
    texts = [" ".join(draw.choices(words, k=1 + i % 40)) for i in range(300)]
    tokenizer.train(" ".join(texts), VOCAB)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = folder / "texts.bin"
    called(ARGS.programs / "ch24_tokenizer", "encode", "--tokenizer", folder / "tokenizer", "--data", folder / "texts.jsonl",
           "--format", "megatron", "--out", source)
    called(ARGS.programs / "ch38_pretrain", "--data", source, "--tokens", "uint16", "--tokenizer", folder / "tokenizer",
           "--model", "llama-tiny", "--layers", 2, "--seq-len", 32, "--documents", "--sources", f"{source}:1", "--batch", 8,
           "--micro-batch", 1, "--ranks", 4, "--replicas", 2, "--optimizer", "muon", "--lr", 0.01, "--steps", 20,
           "--save", folder / "model", "--save-every", 5, "--async", "--alarms", "--watch-every", 5, "--quiet")
    return folder / "model", [source]


class Pretrain(unittest.TestCase):
    def test_transformers_open_the_model(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        here, of = Path(folder.name), Path(ARGS.of)
        model, sources = (of / "model", sorted(of.glob("held_out/*.bin"))) if ARGS.of else trained(here)
        config = json.loads((model / "config.json").read_text())
        T = config["max_position_embeddings"]
        print("source         loss here  in transformers, FP64  tolerance")
        for source in sources:
            ours, theirs = our_loss(model, source, here), loss_of_documents(model, source, T)
            allowed = tolerance(config, theirs)
            print(f"{source.stem:12}  {ours:10.7f}  {theirs:21.7f}  {allowed:9.1e}")
            self.assertLessEqual(abs(ours - theirs), allowed, source)
        other = here / "other"
        shutil.copytree(model, other)
        (other / "config.json").unlink()
        (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-2}))
        self.assertGreater(abs(ours - loss_of_documents(other, source, T)), allowed, "control: another epsilon is not seen")


if __name__ == "__main__":
    run(Pretrain)
