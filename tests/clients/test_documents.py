#!/usr/bin/env python3
"""Documents in Megatron's files: its IndexedDataset reads what ch24_tokenizer writes, and
ch26_packing trains on what its IndexedDatasetBuilder writes. megatron-core comes from PyPI.

    test_documents.py --build build/cpu              skipped (status 77) unless it is installed
    test_documents.py --build build/cpu --install    installs it in build/clients first
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import call, flags, skip, transformers_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/24_tokenizer"))
from cases import Program, Random, corpus  # noqa: E402

WANTED = ["megatron-core==0.16.1", "packaging"]  # without what they depend on
# Run beside Megatron: prints the documents of ids.bin, and writes them once more as theirs.bin.
THEIRS = """
import json, numpy, sys, torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
folder = sys.argv[1]
read = IndexedDataset(f"{folder}/ids")
documents = [read[i].tolist() for i in range(len(read))]
writer = IndexedDatasetBuilder(f"{folder}/theirs.bin", dtype=numpy.int32)
for one in documents:
    writer.add_document(torch.tensor(one), [len(one)])
writer.finalize(f"{folder}/theirs.idx")
print(json.dumps(documents))
"""


def losses(program, folder, data):
    """The trace of a short run on these documents."""
    subprocess.run([program, "--data", data, "--tokens", "uint32", "--vocab", "300", "--documents", "--model", "nano",
                    "--layers", "1", "--batch", "4", "--steps", "3", "--trace", "trace.jsonl", "--quiet"],
                   cwd=folder, check=True)
    return [json.loads(line)["param_hash"] for line in (folder / "trace.jsonl").read_text().splitlines()]


def faults_of(build, environment, folder):
    ours, random = Program(build / "bin/ch24_tokenizer", folder), Random(3)
    ours.train("".join(corpus(random) for _ in range(20)), 300)
    texts = [text for text in (corpus(random) for _ in range(300)) if text]
    wanted = ours.encode(texts, "tokenizer")
    found = json.loads(environment.run("-W", "ignore", "-c", THEIRS, folder, folder=environment.folder / "megatron").splitlines()[-1])
    if [one[:-1] for one in found] != wanted:
        yield "Megatron reads other documents than ch24_tokenizer wrote"
    if {one[-1] for one in found} != {found[0][-1]}:
        yield "Megatron's documents do not all end with the end of text"
    program = (build / "bin/ch26_packing").resolve()
    if losses(program, folder, "ids.bin") != losses(program, folder, "theirs.bin"):
        yield "ch26_packing trains on other documents where Megatron wrote them"
    (folder / "ids.idx").write_bytes((folder / "theirs.idx").read_bytes()[:-8])
    done = subprocess.run([program, "--data", "ids.bin", "--tokens", "uint32", "--vocab", "300", "--documents"],
                          cwd=folder, capture_output=True)
    if done.returncode != 2:
        yield "control: an index that was cut off is not refused"


def main():
    args = flags().parse_args()
    environment = transformers_of(args.build)
    environment.require(args.install)
    megatron = environment.folder / "megatron"
    if not megatron.exists():
        if not args.install:
            skip("megatron-core is not installed")
        call(environment.python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", megatron, *WANTED)
    with tempfile.TemporaryDirectory() as folder:
        faults = list(faults_of(args.build, environment, Path(folder)))
    print("\n".join(faults) or "Megatron reads what we write, and we read what it writes")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
