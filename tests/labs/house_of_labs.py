"""What the tests of labs share: the engine, and a copy of the tree to plant faults in."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))


class Tree(unittest.TestCase):
    """The tree in a temporary folder: links, and copies of what replace() changes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        for path in [*(ROOT / "labs").iterdir(), *(ROOT / "chapters").iterdir(), ROOT / "kernels", ROOT / "common"]:
            link = self.root / path.relative_to(ROOT)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)

    def replace(self, name, old, new):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        if path.parent.is_symlink():
            folder = path.parent.resolve()
            path.parent.unlink()
            shutil.copytree(folder, path.parent)
        self.assertFalse(path.parent.resolve().is_relative_to(ROOT))  # never in the tree itself
        path.unlink()
        path.write_text(text.replace(old, new), encoding="utf-8")
