#!/usr/bin/env python3
"""Scripts that judge: they call wrong what is wrong, and right what is right; and the text that all train on."""

import contextlib
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from calls import FromAFolder
from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import chapter_tree  # noqa: E402
import gpu_measure  # noqa: E402
import gpu_runs  # noqa: E402
import readme_commands  # noqa: E402


class Calls(FromAFolder):
    def test_text(self):
        for name in ("dirname", "mkdir", "python3", "wc"):
            (self.programs / name).symlink_to(shutil.which(name))
        for words in [["out/text.txt"], ["--grammar", "out/text.txt"]]:
            done = self.call("text.sh", *words, path="")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = (self.here / "out/text.txt").read_bytes()
            self.assertEqual(hashlib.sha256(text).hexdigest(),
                             "99570de3a1ee36af6e0637c0238cc9252a6c1094fc84dc2cf80f2dae5551b370")
            self.assertEqual([path.name for path in (self.here / "out").iterdir()], ["text.txt"])
        self.pretend("apt-get")
        done = self.call("text.sh", "text.txt", path="")
        self.assertEqual((done.returncode, self.left()), (2, ["out"]))
        self.assertIn("no program 'bible'; scripts/setup.sh installs it", done.stderr)

    def bits(self, change=lambda bits: bits, status=0, name=None):
        """scripts/bits.py on a program that writes the golden bits, or others."""
        golden = json.loads((ROOT / "tests/golden/bits.json").read_text())
        run = next(run for run in golden["runs"] if run["name"] == "lion")
        self.pretend(name or f"ch{run['layouts'][0]}", text=f"""#!/bin/sh
while [ "$1" != --trace ]; do shift; done
for i in $(seq {run['steps']}); do echo '{json.dumps(change(run["bits"]["ref"]))}'; done >"$2"
exit {status}
""")
        done = subprocess.run([ROOT / "scripts/bits.py", self.programs, "--run", "lion", "--backend", "ref"],
                              capture_output=True, text=True)
        return done.returncode, done.stdout

    def test_bits(self):
        self.assertIn("not built: 32_optimizers", self.bits(name="other")[1])
        self.assertEqual(self.bits(), (0, "1 runs with the golden bits, 0 without\n"))
        for field, value in [("loss", "0x1p+0"), ("grad_norm", "nan"), ("param_hash", "0")]:
            status, said = self.bits(lambda bits: {**bits, field: value})
            self.assertEqual(status, 1)
            self.assertIn(f"{field} {value}, not", said)
        self.assertIn("exit status 3", self.bits(status=3)[1])


class Tables(unittest.TestCase):
    def test_gpu_check_names_what_is_there(self):
        sources = "".join(path.read_text() for path in (ROOT / "kernels/cuda").glob("attention_*"))
        for kernel in gpu_measure.COUNTED:
            self.assertTrue(re.search(rf"__global__[^;{{]*\b{kernel}\(", sources), kernel)
        trained = {name for name, row in chapter_tree.chapters().items() if row.trains}
        self.assertEqual({chapter for chapter, _, _ in gpu_runs.BESIDE_CPU}, trained)
        script = (ROOT / "scripts/gpu_check.sh").read_text()
        self.assertIn(f"some of {','.join(gpu_measure.PARTS)}\n", script)


class ReadmeCommands(unittest.TestCase):
    def faults(self, text):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            readme = Path(folder) / "01_x" / "README.md"
            readme.parent.mkdir()
            readme.write_text(text, encoding="utf-8")
            return readme_commands.run_readme(readme, folder)

    def test_what_works_and_what_does_not(self):
        run = "```sh\nrun() {{ echo $1; }}\n```\n\n1. Do.\n\n   ```sh\n   [[ $(run a) == {} ]]\n   ```\n"
        for text, count in [("```sh\ntrue\n```\n", 0), ("```sh\nfalse | cat\n```\n", 1), ("```sh\nfalse\ntrue\n```\n", 1),
                            ("This is refused:\n\n```sh\nexit 2\n```\n", 0), ("This is refused:\n\n```sh\nexit 0\n```\n", 1),
                            ("Do:\n\n```sh\nexit 0\n```\n\nMore is refused.\n", 0), ("They differ:\n\n```sh\nexit 2\nexit 1\n```\n", 1),
                            ("They differ:\n\n```sh\n(exit 2)\ntrue\n```\n", 1), ("```sh\nexit 1\n```\n\nThey differ.\n", 0),
                            ("It ends with status 3:\n\n```sh\nexit 3\n```\n", 0), ("They differ:\n\n```sh\nexit 2\n```\n", 1),
                            (run.format("a"), 0), (run.format("b"), 1)]:
            self.assertEqual(len(self.faults(text)), count, text)


if __name__ == "__main__":
    unittest.main()
