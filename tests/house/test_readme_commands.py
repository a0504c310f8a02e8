#!/usr/bin/env python3
"""scripts/readme_commands.py is checked: what it runs of a README, and that it sees what fails."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import readme_commands  # noqa: E402


class ReadmeCommands(unittest.TestCase):
    def faults(self, text):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "01_x" / "README.md"
            readme.parent.mkdir()
            readme.write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()):
                return readme_commands.run_readme(readme, folder, steps=3)

    def test_what_works_and_what_does_not(self):
        self.assertEqual(self.faults("Run:\n\n```sh\ntrue\n```\n"), [])
        for bad in ["false", "false | cat", "no_such_program", "false\ntrue"]:
            found = self.faults(f"Run:\n\n```sh\n{bad}\n```\n")
            self.assertEqual(len(found), 1, bad)
            self.assertIn("01_x/README.md:3: status", found[0])

    def test_what_may_fail_says_so(self):
        self.assertEqual(self.faults("This is refused:\n\n```sh\nexit 2\n```\n"), [])
        self.assertEqual(self.faults("```sh\nexit 1\n```\n\nThey differ.\n"), [])
        self.assertEqual(self.faults("It ends with status 3:\n\n```sh\nexit 3\n```\n"), [])
        self.assertEqual(len(self.faults("They differ:\n\n```sh\nexit 2\n```\n")), 1)

    def test_a_function_serves_the_exercises(self):
        text = "```sh\nrun() { echo $1; }\n```\n\n1. Do.\n\n   ```sh\n   [[ $(run a) == a ]]\n   ```\n"
        self.assertEqual(self.faults(text), [])
        self.assertEqual(len(self.faults(text.replace("== a", "== b"))), 1)

    def test_shorter(self):
        short = lambda text: readme_commands.shortened(text, 3)
        program = "build/cpu/bin/ch01_sgd --data runs/bible.txt"
        self.assertEqual(short(f"{program} --steps 500\n"), f"{program} --steps 3\n")
        self.assertEqual(short(f"{program}\n"), f"{program} --steps 3\n")
        self.assertEqual(short("run --steps 500\n"), "run --steps 500\n")
        self.assertEqual(short("cmake --preset cpu\nscripts/setup.sh\nbuild/cuda/bin/ch01_sgd\n"), "")
        self.assertIn("-R Fp8 -N |", short("cmake --build --preset cpu && ctest --test-dir build/cpu -R Fp8\n"))


if __name__ == "__main__":
    unittest.main()
