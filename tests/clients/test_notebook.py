#!/usr/bin/env python3
"""nbclient of PyPI runs docs/notebook.ipynb in a copy of the tree, cell by cell, as Jupyter does.

    test_notebook.py --build build/cpu              skipped (status 77) unless it is installed
    test_notebook.py --build build/cpu --install    installs it in build/clients first
"""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from environment import enter, run

enter("notebook", ["nbclient>=0.10,<1", "ipykernel>=6"])
import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "docs/notebook.ipynb"
SECONDS = 1800  # of a cell


class Notebook(unittest.TestCase):
    def test_it_is_committed_without_what_it_prints(self):
        for cell in json.loads((ROOT / NOTEBOOK).read_text(encoding="utf-8"))["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None), cell["id"])

    def test_every_cell_runs(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            to = Path(folder.name, name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to)
        notebook = nbformat.read(ROOT / NOTEBOOK, as_version=4)
        NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(Path(folder.name, "docs"))}}).execute()
        printed = {cell["id"]: "".join(output.get("text", "") for output in cell.get("outputs", [])) for cell in notebook.cells}
        self.assertEqual(printed["tree"].strip(), str(Path(folder.name).resolve()))
        self.assertIn("one rank and eight: the same bits", printed["ranks"])
        self.assertIn("hint 1 of", printed["lab"])
        self.assertRegex(printed["check"], re.compile(r"^cuda_sum: 0 of 100 points", re.MULTILINE))


if __name__ == "__main__":
    run(Notebook)
