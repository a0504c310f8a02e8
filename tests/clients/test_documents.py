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
import unittest
from pathlib import Path

from environment import TRANSFORMERS, enter, run

ARGS = enter("", TRANSFORMERS, ["megatron-core==0.16.1", "packaging"])
import numpy  # noqa: E402
import torch  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "24_tokenizer"))
from cases import Program, Random, corpus  # noqa: E402


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)

    def trained(self, data):
        """A short run on these documents."""
        flags = "--tokens uint32 --vocab 300 --documents --model nano --layers 1 --batch 4 --steps 3 --trace trace.jsonl --quiet"
        return subprocess.run([ARGS.programs / "ch26_packing", "--data", data, *flags.split()], cwd=self.here, capture_output=True,
                              text=True)

    def hashes(self, data):
        done = self.trained(data)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["param_hash"] for line in (self.here / "trace.jsonl").read_text().splitlines()]

    def test_both_read_what_the_other_writes(self):
        ours, random = Program(ARGS.programs / "ch24_tokenizer", self.here), Random(3)
        ours.train("".join(corpus(random) for _ in range(20)), 300)
        texts = [text for text in (corpus(random) for _ in range(300)) if text]
        wanted = ours.encode(texts, "tokenizer")
        read = IndexedDataset(str(self.here / "ids"))
        found = [read[i].tolist() for i in range(len(read))]
        self.assertEqual([one[:-1] for one in found], wanted)
        self.assertEqual(len({one[-1] for one in found}), 1, "not all end with the end of text")
        writer = IndexedDatasetBuilder(str(self.here / "theirs.bin"), dtype=numpy.int32)
        for one in found:
            writer.add_document(torch.tensor(one), [len(one)])
        writer.finalize(str(self.here / "theirs.idx"))
        self.assertEqual(self.hashes("theirs.bin"), self.hashes("ids.bin"))
        (self.here / "ids.idx").write_bytes((self.here / "theirs.idx").read_bytes()[:-8])
        self.assertEqual(self.trained("ids.bin").returncode, 2, "control: an index that was cut off is not refused")


if __name__ == "__main__":
    run(Documents)
