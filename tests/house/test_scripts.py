#!/usr/bin/env python3
"""Scripts say at once what is wrong with a call, and leave nothing half done."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_measure  # noqa: E402
import gpu_runs  # noqa: E402


class Calls(unittest.TestCase):
    """From a folder of their own, which holds programs that only pretend."""

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

    def call(self, script, *words, path=os.environ["PATH"], **variables):
        environment = {**os.environ, "PATH": f"{self.programs}:{path}", **variables}
        return subprocess.run(["/bin/bash", ROOT / "scripts" / script, *words], cwd=self.here,
                              env=environment, capture_output=True, text=True)


class Scripts(Calls):

    def test_setup_without_apt_says_what_to_install(self):
        done = self.call("setup.sh", path="")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no apt-get here, so nothing is installed", done.stderr)
        for library in ["Highway", "highway-devel", "brew install", "not tried"]:
            self.assertIn(library, done.stderr)

    def test_setup_says_where_its_names_are_from(self):
        self.pretend("apt-get", "cat")
        (self.programs / "dpkg-query").write_text("#!/bin/sh\nprintf installed\n")
        (self.programs / "dpkg-query").chmod(0o755)
        system = self.here / "os-release"
        for name, version, known in [("debian", "12", True), ("debian", "13", True),
                                     ("ubuntu", "24.04", True), ("debian", "14", False)]:
            system.write_text(f'ID={name}\nVERSION_ID="{version}"\n')
            done = self.call("setup.sh", "--all", LADDER_OS_RELEASE=str(system))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(f"this is '{name} {version}'" not in done.stdout, known, done.stdout)

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


class GpuCheck(Calls):
    """scripts/gpu_check.sh where there is no GPU, and its tables."""

    def test_a_wrong_call_is_told_in_one_line_and_leaves_nothing(self):
        (self.here / "text").write_text("no archive")
        for words, said in [("--pack", "--pack takes the name of a file"),
                            ("--pack none/file", "--pack none/file: legal is a file in a folder"),
                            ("--pack file --march", "--march takes a value"),
                            ("--pack file --only speed", "--pack FILE takes --architectures"),
                            ("--run", "--run takes the name of a file"),
                            ("--run none", "--run none: no such file"),
                            ("--run text", "--run text: not what --pack makes"),
                            ("--run text --only speed,none", "'speed,none'; legal are some of kernels,"),
                            ("--run text --limit 9", "'9'; legal are 10 and more seconds"),
                            ("--run text --out text", "--out text: no folder"),
                            ("--only none", "'none'; legal are some of kernels,"),
                            ("--none", "unrecognized arguments: --none")]:
            done = self.call("gpu_check.sh", *words.split())
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(said, done.stderr)
            self.assertRegex(done.stderr, r"^gpu_check.sh: [^\n]*\n$")
            self.assertEqual([path.name for path in self.here.iterdir()], ["text"])

    @unittest.skipIf(shutil.which("nvidia-smi"), "there may be a GPU here")
    def test_without_a_gpu_nothing_is_built(self):
        done = self.call("gpu_check.sh")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no GPU here: nvidia-smi finds none", done.stderr)

    def test_tables_name_what_is_there(self):
        sources = "".join(path.read_text() for path in (ROOT / "kernels/cuda").glob("attention_*"))
        for kernel in gpu_measure.COUNTED:
            self.assertTrue(re.search(rf"__global__[^;{{]*\b{kernel}\(", sources), kernel)
        trained = {path.parent.name for path in (ROOT / "chapters").glob("*/main.cpp")
                   if "train_step" in path.read_text()}
        self.assertEqual({chapter for chapter, _, _ in gpu_runs.BESIDE_CPU}, trained)
        script = (ROOT / "scripts/gpu_check.sh").read_text()
        self.assertIn(f"some of {','.join(gpu_measure.PARTS)}\n", script)


    def test_a_step_becomes_a_row(self):
        """Of a program that only writes a report: of 2 ms and 3 MiB."""
        report = {"step_ms_median": 2, "memory": [{"rank": 0, "Param": {"predicted": 0, "measured": 1 << 20},
                                                   "Optim": {"predicted": 0, "measured": 2 << 20}}]}
        program = self.programs / "ch05_mixed_precision"
        program.write_text(f"""#!/bin/sh
for word; do case $word in --report=*) echo '{json.dumps(report)}' >"${{word#--report=}}" ;; esac; done
""")
        program.chmod(0o755)
        done = subprocess.run([sys.executable, ROOT / "bench/peers/gpu_step.py", "--programs=ladder",
                               "--rows=gpt2-124m", f"--bin={self.programs}", "--backend=cpu"],
                              cwd=self.here, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"gpt2-124m \| Ladder 05 \| 32 \| 2.0 \| 16,384,000 \|.*\| 0.0 \|")


class Bits(unittest.TestCase):
    """scripts/bits.py on programs that write the golden bits, and on others."""

    def check(self, change=lambda bits: bits, status=0, program=True):
        golden = json.loads((ROOT / "tests/golden/bits.json").read_text())
        run = next(run for run in golden["runs"] if run["name"] == "lion")
        line = json.dumps(change(run["bits"]["ref"]))
        with tempfile.TemporaryDirectory() as folder:
            if program:
                path = Path(folder) / f"ch{run['layouts'][0]}"
                path.write_text(f"""#!/bin/sh
while [ "$1" != --trace ]; do shift; done
for i in $(seq {run['steps']}); do echo '{line}'; done >"$2"
exit {status}
""")
                path.chmod(0o755)
            return subprocess.run([ROOT / "scripts/bits.py", folder, "--run", "lion", "--backend", "ref"],
                                  capture_output=True, text=True)

    def test_golden_bits(self):
        done = self.check()
        self.assertEqual((done.returncode, done.stdout), (0, "1 runs with the golden bits, 0 without\n"))

    def test_other_bits_of_any_kind(self):
        for field, value in [("loss", "0x1p+0"), ("grad_norm", "nan"), ("param_hash", "0")]:
            done = self.check(lambda bits: {**bits, field: value})
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{field} {value}, not", done.stdout)

    def test_a_program_that_fails_or_is_missing(self):
        self.assertIn("exit status 3", self.check(status=3).stdout)
        done = self.check(program=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not built: 04_clipping", done.stdout)


if __name__ == "__main__":
    unittest.main()
