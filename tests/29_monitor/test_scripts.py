#!/usr/bin/env python3
"""scripts/curves.py on traces and event files of short runs.

    test_scripts.py --program ch29_monitor
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "--data text.txt --model nano --layers 2 --batch 8 --threads 1 --steps 4 --quiet".split()


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "text.txt").write_text("In the beginning was the Word.\n" * 40)
        for name, flags in {"a": "", "b": "--ranks 2", "c": "--plant rate:2", "d": "--plant freeze:2"}.items():
            words = [*flags.split(), "--trace", f"{name}.jsonl", "--events", name, "--watch-every", "1"]
            subprocess.run([cls.program, *FLAGS, *words], cwd=cls.folder, check=True)

    def script(self, name, *words):
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts" / name, *words], cwd=self.folder,
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_equal_runs(self):
        for files in (["a", "b"], ["a.jsonl", "b.jsonl"]):
            self.assertEqual(self.script("curves.py", *files), (0, "equal: all numbers of the 4 steps that both have\n"))

    def test_the_first_difference(self):
        self.assertRegex(self.script("curves.py", "a.jsonl", "c.jsonl")[1], "^step 2 is the first that differs: lr,")
        # The last block has no gradient: of its tensors backward computes the last one first.
        self.assertRegex(self.script("curves.py", "a", "d")[1],
                         r"^step 2 is the first that differs: gradient/transformer.h.1.mlp.c_proj.bias, .* and 0,")

    def test_bad_input(self):
        (self.folder / "list.jsonl").write_text("[]\n")
        for words in (["a", "nothing"], ["text.txt", "a.jsonl"], ["list.jsonl", "a.jsonl"], ["a"]):
            status, text = self.script("curves.py", *words)
            self.assertEqual(status, 2, text)
            self.assertNotIn("Traceback", text)


if __name__ == "__main__":
    at = sys.argv.index("--program")
    Scripts.program = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    unittest.main()
