"""What the tests of labs share: the engine, and a copy of the tree small enough to plant faults."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))


class Tree(unittest.TestCase):
    """labs/ and the chapter of lab 08 in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ["labs", "chapters"]:
            shutil.copytree(ROOT / name, self.root / name, ignore=ignore)
        # Headers that the chapter includes: libclang reads them.
        for name in ["kernels", "common"]:
            (self.root / name).symlink_to(ROOT / name)

    def replace(self, name, old, new):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new), encoding="utf-8")
