"""What tests of scripts share: they are called from a folder of their own, with programs that only pretend."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT


class FromAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here, self.programs = (Path(folder.name) / name for name in ("here", "programs"))
        self.here.mkdir()
        self.programs.mkdir()

    def pretend(self, *names, text="#!/bin/sh\n"):
        for name in names:
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def call(self, script, *words, path=os.environ["PATH"], **variables):
        environment = {**os.environ, "PATH": f"{self.programs}:{path}", **variables}
        program = [sys.executable, "-B"] if str(script).endswith(".py") else ["/bin/bash"]
        return subprocess.run([*program, ROOT / "scripts" / script, *words], cwd=self.here,
                              env=environment, capture_output=True, text=True)

    def left(self):
        return [path.name for path in self.here.iterdir()]
