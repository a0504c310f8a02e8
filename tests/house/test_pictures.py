#!/usr/bin/env python3
"""The pictures of the chapters are as scripts/pictures.py draws them, and one that is not is seen."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import pictures  # noqa: E402


class Pictures(unittest.TestCase):
    def setUp(self):
        self.data = json.loads(pictures.DATA.read_text(encoding="utf-8"))

    def test_fresh(self):
        self.assertEqual(pictures.faults(ROOT, self.data), [])

    def test_shown_and_whole(self):
        for name in pictures.PICTURES:
            with self.subTest(name):
                path = ROOT / "chapters" / name
                xml.parse(path)
                self.assertIn(f"]({path.name})", (path.parent / "README.md").read_text(encoding="utf-8"))

    def test_stale(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, draw in pictures.PICTURES.items():
                path = root / "chapters" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(draw(self.data), encoding="utf-8")
            table = root / "chapters" / pictures.TABLE
            table.parent.mkdir()
            table.write_text(pictures.with_table(pictures.BEGIN + pictures.END, self.data), encoding="utf-8")
            self.assertEqual(pictures.faults(root, self.data), [])
            self.data["models"][0]["layers"] += 1
            found = pictures.faults(root, self.data)
            self.assertEqual(len(found), 1, found)
            self.assertIn("stale table of models", found[0])
            self.data["models"][0]["layers"] -= 1
            self.data["ring"][0][1]["state"][0] = 1001
            found = pictures.faults(root, self.data)
            self.assertEqual(len(found), 1, found)
            self.assertIn("07_ddp/ring.svg: stale picture", found[0])

    def test_what_the_code_computes(self):
        """--check with a program that computes something else."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            self.data["pipelines"][0]["idle"] = 0.5
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(self.data)}\nEND\n")
            program.chmod(0o755)
            told = io.StringIO()
            argv, sys.argv = sys.argv, ["pictures.py", "--check", "--program", str(program)]
            with contextlib.redirect_stdout(told):
                status = pictures.main()
            sys.argv = argv
            self.assertEqual(status, 1)
            self.assertIn("the code computes something else", told.getvalue())


if __name__ == "__main__":
    unittest.main()
