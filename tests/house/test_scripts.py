#!/usr/bin/env python3
"""Scripts say at once what is wrong with a call, and leave nothing half done."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT


class Scripts(unittest.TestCase):
    """Calls from a folder of their own, which holds programs that only pretend."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name) / "here"
        self.programs = Path(folder.name) / "programs"
        self.here.mkdir()
        self.programs.mkdir()

    def pretend(self, *names):
        for name in names:
            path = self.programs / name
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)

    def call(self, script, *words, path=os.environ["PATH"]):
        environment = {**os.environ, "PATH": f"{self.programs}:{path}"}
        return subprocess.run(["/bin/bash", ROOT / "scripts" / script, *words], cwd=self.here,
                              env=environment, capture_output=True, text=True)

    def test_bundle_asks_for_the_text_first(self):
        self.pretend("apt-get", "apt-cache", "dpkg-deb", "g++")
        done = self.call("bundle_deps.sh", "deps", path="")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no program 'bible'", done.stderr)
        self.assertEqual(list(self.here.iterdir()), [])

    def test_bundle_leaves_nothing_unfinished(self):
        self.pretend("apt-get", "apt-cache", "dpkg-deb", "g++", "bible")
        for _ in range(2):  # the first is not in the way of the second
            done = self.call("bundle_deps.sh", self.here / "deps")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("include/boost", done.stderr)  # which no package has brought
            self.assertEqual(list(self.here.iterdir()), [])

    def borrow(self, *names):
        for name in names:
            (self.programs / name).symlink_to(shutil.which(name))

    def test_text_without_apt_is_the_same_everywhere(self):
        self.borrow("dirname", "mkdir", "python3", "wc")
        for words in [["out/text.txt"], ["--grammar", "out/text.txt"]]:
            done = self.call("text.sh", *words, path="")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = (self.here / "out/text.txt").read_bytes()
            self.assertEqual(len(text), 500_000)
            self.assertEqual(hashlib.sha256(text).hexdigest(),
                             "99570de3a1ee36af6e0637c0238cc9252a6c1094fc84dc2cf80f2dae5551b370")
            self.assertEqual([path.name for path in (self.here / "out").iterdir()], ["text.txt"])

    def test_text_with_apt_is_the_bible(self):
        self.borrow("dirname", "mkdir", "python3", "wc")
        self.pretend("apt-get")
        done = self.call("text.sh", "text.txt", path="")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no program 'bible'; scripts/setup.sh installs it", done.stderr)
        self.assertEqual(list(self.here.iterdir()), [])

    @unittest.skipUnless(Path("/usr/bin/python3").exists(), "compare.sh wants Debian's Python")
    def test_compare_reads_its_flags_before_it_installs(self):
        done = self.call("compare.sh", "--data", "nope.txt")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("nope.txt: no such file", done.stderr)
        done = self.call("compare.sh", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("usage:"), done.stdout)

    def test_pictures_ask_for_matplotlib_before_anything_is_measured(self):
        for script, *words in [["scripts/timeline_svg.py", "none.json", "--out", "step.svg"],
                               ["bench/shaped_link.py", "--picture", "step.svg"]]:
            # -S: without installed packages.
            done = subprocess.run([sys.executable, "-S", ROOT / script, *words], cwd=self.here,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("no matplotlib", done.stderr)
            self.assertEqual(list(self.here.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
