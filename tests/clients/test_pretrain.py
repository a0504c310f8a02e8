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
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import flags, transformers_of
from test_transformers import HERE, tolerance

sys.path.insert(0, str(HERE.parent / "24_tokenizer"))
from cases import Program  # noqa: E402

VOCAB = 300


def call(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def our_loss(programs, model, source, folder):
    """Chapter 26's on what it holds out of a source. The weights alone: no run goes on."""
    config, report = json.loads((model / "config.json").read_text()), folder / "report.json"
    call(programs / "ch26_packing", "--load", model / "model.safetensors", "--data", source, "--tokens", "uint16", "--documents",
         "--tokenizer", model, "--model", "llama-tiny", "--layers", config["num_hidden_layers"],
         "--seq-len", config["max_position_embeddings"], "--batch", 4, "--steps", 0, "--threads", 1, "--quiet",
         "--report", report)
    return json.loads(report.read_text())["val_loss"]


def trained(programs, folder):
    """A small run of all ideas: its model, and the one source."""
    tokenizer, words, draw = Program(programs / "ch24_tokenizer", folder), "seven rivers run to the sea and it is not full".split(), \
        random.Random(1)
    texts = [" ".join(draw.choices(words, k=1 + i % 40)) for i in range(300)]
    tokenizer.train(" ".join(texts), VOCAB)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = folder / "texts.bin"
    call(programs / "ch24_tokenizer", "encode", "--tokenizer", folder / "tokenizer", "--data", folder / "texts.jsonl",
         "--format", "megatron", "--out", source)
    call(programs / "ch38_pretrain", "--data", source, "--tokens", "uint16", "--tokenizer", folder / "tokenizer",
         "--model", "llama-tiny", "--layers", 2, "--seq-len", 32, "--documents", "--sources", f"{source}:1", "--batch", 8,
         "--micro-batch", 1, "--ranks", 4, "--replicas", 2, "--optimizer", "muon", "--lr", 0.01, "--steps", 20,
         "--save", folder / "model", "--save-every", 5, "--async", "--alarms", "--watch-every", 5, "--quiet")
    return folder / "model", [source]


def faults_of(programs, environment, folder, model, sources):
    config = json.loads((model / "config.json").read_text())
    shutil.copytree(model, folder / "other")
    (folder / "other/config.json").unlink()
    (folder / "other/config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-2}))
    jobs = [{"open": str(one), "documents": str(source), "tokens": config["max_position_embeddings"]}
            for one, source in [*((model, source) for source in sources), (folder / "other", sources[-1])]]
    *answers, other = json.loads(environment.run(HERE / "models.py", json.dumps(jobs)).splitlines()[-1])
    print("source         loss here  in transformers, FP64  tolerance")
    for source, theirs in zip(sources, answers):
        ours, allowed = our_loss(programs, model, source, folder), tolerance(config, theirs["f64"])
        print(f"{source.stem:12}  {ours:10.7f}  {theirs['f64']:21.7f}  {allowed:9.1e}")
        if not abs(ours - theirs["f64"]) <= allowed:
            yield f"{source}: the losses differ by more"
    if not abs(ours - other["f64"]) > allowed:
        yield f"control: {sources[-1]}: another epsilon is not seen"


def main():
    parser = flags()
    parser.add_argument("--of", type=Path, help="the folder of scripts/pretrain.sh")
    args = parser.parse_args()
    programs, environment = args.build.resolve() / "bin", transformers_of(args.build)
    environment.require(args.install)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, sources = (args.of / "model", sorted(args.of.glob("held_out/*.bin"))) if args.of else trained(programs, folder)
        faults = list(faults_of(programs, environment, folder, model, sources))
    print("\n".join(faults) or "transformers open the model, and have the same loss")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
