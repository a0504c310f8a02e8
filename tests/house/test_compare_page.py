#!/usr/bin/env python3
"""scripts/compare.sh on programs that are made up: its page, its tables, and when it fails."""

import contextlib
import importlib.util
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from house import ROOT

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "compare")]
import compare  # noqa: E402
import plans  # noqa: E402
import runs  # noqa: E402
import tables  # noqa: E402
from rows import Row  # noqa: E402

# A program: writes what --report and --trace want. An update of OTHER at step 1 is not the others', and
# SLOW takes twice as long.
PROGRAM = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
a = sys.argv
chapter = Path(a[0]).name[2:]
if chapter == "REFUSES": sys.exit("error: --tp 2 is not legal here")
steps, ranks = int(a[a.index("--steps") + 1]), 2 if "--ranks" in a else 1
both = dict(predicted=8, measured=8)
Path(a[a.index("--report") + 1]).write_text(json.dumps(dict(
    chapter=chapter, tokens_per_second=1.0, step_ms_median=1.0 + (chapter == "SLOW"), final_loss=1.0, val_loss=1.0,
    layout=dict(ranks=ranks, dp=ranks, cp=1, tp=1, pp=1, threads=1, micro_batch=1),
    model=dict(layers=4, heads=4, channels=8, seq_len=16, parameters=1234),
    memory=[dict(rank=r, Param=both, Grad=both, Workspace=both) for r in range(ranks)],
    comm=[dict(rank=r, all_reduce=dict(wire_bytes=100 + 7 * steps)) for r in range(ranks)],
    extra=PIPELINE)))
line = lambda i: dict(step=i, loss="0x1p+1", grad_norm="0x1p+0", lr="0x1p-1",
                      param_hash="%016x" % (i + (chapter == "OTHER" and i == 1)))
if "--trace" in a:
    Path(a[a.index("--trace") + 1]).write_text("".join(json.dumps(line(i)) + "\\n" for i in range(steps)))
else:
    open("turns", "a").write(f"{chapter} {steps}\\n")
"""
PIPELINE = {"pipeline": {"name": "1f1b", "stages": 1, "chunks": 1, "micro_batches": 1,
                         "bubble": {"theory": 0.25, "measured": 0.5},
                         "in_flight": [{"predicted": 1, "measured": 1}],
                         "timeline": [[["F", 0, 0, 0.0, 1.0], ["B", 0, 0, 1.0, 3.0]]]}}
# Chapter 23's, which takes 100 GiB where layers are whole, and answers twice where there are two stages.
PLANNER = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
a = sys.argv
of = lambda flag: a[a.index(flag) + 1]
if "gigabytes = 1000000\\n" not in Path(of("--device")).read_text(): sys.exit("error: no layout fits")
states = 100 if of("--tp") == "1" else 2
seconds = dict(products=3.0, tensor=0.5, context=0.25, messages=0.125, data=0.125, bubble=1.0)
layout = dict({name: int(of("--" + name)) for name in ("tp", "cp", "dp", "pp", "zero")}, mfu=0.5,
              step_seconds=5.0, seconds=seconds,
              memory=dict(Param=states << 30, Grad=0, Activation=1 << 30, Workspace=4 << 30))
Path(of("--report")).write_text(json.dumps(dict(layouts=[layout] * (1 + (of("--pp") == "2")))))
"""


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "charts need matplotlib")
class Whole(unittest.TestCase):
    """compare.main() on a tree of made-up programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for target, name, value in [(runs, "ROOT", self.root), (compare, "ROOT", self.root),
                                    (compare, "build", lambda args: None)]:
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_on(self, *wanted, more=(), planner=PLANNER):
        """Exit status, screen and page; a program for each row but those of NOT_BUILT, and chapter 23's."""
        bin_ = self.root / "build/cpu/bin"
        bin_.mkdir(parents=True, exist_ok=True)
        for row in wanted:
            if row.chapter != "NOT_BUILT":
                path = bin_ / f"ch{row.chapter}"
                path.write_text(PROGRAM.replace("PIPELINE", repr(PIPELINE)))
                path.chmod(0o755)
        if planner:
            (bin_ / "ch23_planner").write_text(planner)
            (bin_ / "ch23_planner").chmod(0o755)
            device = self.root / plans.DEVICE
            device.parent.mkdir(parents=True, exist_ok=True)
            device.write_text((ROOT / plans.DEVICE).read_text())
        out, screen = self.root / "report", io.StringIO()
        text = self.root / "text"
        text.write_text("text " * 400)
        with mock.patch.object(compare, "rows", lambda *_: list(wanted)), \
             mock.patch.multiple(Row, number=6, group="one rank", knows=lambda *_: True), \
             contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            status = compare.main(["--steps", "4", "--ranks", "2", "--rounds", "1", "--data", str(text), "--out", str(out), *more])
        page = out / "index.html"
        return status, screen.getvalue(), page.read_text() if page.exists() else ""

    REFERENCE = Row("06", "06_x", "kept")

    def test_equal(self):
        status, screen, page = self.run_on(self.REFERENCE, Row("a", "SAME", "ddp", "--ranks 2"))
        self.assertEqual(status, 0, screen)
        self.assertIn("2 runs, 1 result", page)
        ids = re.findall(r'\bid="([^"]*)"', page)
        self.assertEqual(len(ids), len(set(ids)))  # of all charts together
        self.assertIn("pipeline-a-axes_1", ids)
        self.assertNotIn("http", page.replace("http://www.w3.org/", ""))  # needs no network
        text = (self.root / "report/traffic.csv").read_text()
        self.assertIn("a,1,all_reduce,7", text)
        self.assertEqual({p.stem for p in (self.root / "report").glob("*.csv")}, set(tables.TABLES))

    def test_times_are_taken_in_turns(self):
        status, screen, _ = self.run_on(self.REFERENCE, Row("a", "SLOW", "slow"), more=["--rounds", "2"])
        self.assertEqual(status, 0, screen)
        self.assertEqual((self.root / "turns").read_text(), "06_x 4\nSLOW 4\n" * 2)
        lines = (self.root / "report/runs.csv").read_text().splitlines()
        head, slow = lines[0].split(","), lines[2].split(",")
        self.assertEqual([slow[head.index(name)] for name in ("step_ms_median", "speed_to_06", "state_bytes")],
                         ["2.0", "0.5000", "16"])

    def test_other_bits_fail(self):
        status, screen, page = self.run_on(self.REFERENCE, Row("a", "OTHER", "zero"))
        self.assertEqual(status, 1)
        self.assertIn("step 1, param_hash", screen)
        self.assertIn("differs, step 1", page)
        self.assertIn("Broken", page)

    def test_other_bits_may_be_expected(self):
        status, screen, page = self.run_on(self.REFERENCE, Row("a", "OTHER", "bf16", "", "16 bits"))
        self.assertEqual(status, 0, screen)
        self.assertIn("16 bits", page)
        self.assertIn("1 run, 1 result", page)

    def test_refusal_fails(self):
        status, screen, page = self.run_on(self.REFERENCE, Row("a", "REFUSES", "tp"))
        self.assertEqual(status, 1)
        self.assertIn("--tp 2 is not legal here", screen)
        self.assertIn("--tp 2 is not legal here", page)

    def test_not_built_is_left_out(self):
        status, screen, page = self.run_on(self.REFERENCE, Row("a", "NOT_BUILT", "mesh"))
        self.assertEqual(status, 0, screen)
        self.assertIn("left out: build/cpu/bin/chNOT_BUILT is not built", screen)
        self.assertIn("NOT_BUILT is not built", page)

    def test_what_the_model_does_not_allow_is_left_out(self):
        row = Row("a", "REFUSES", "tp", "--tp 8")
        status, screen, page = self.run_on(self.REFERENCE, row, more=["--ranks", "8", "--model", "tiny"])
        self.assertEqual(status, 0, screen)
        self.assertIn("left out: 8 ranks cannot share 4 heads", screen)
        self.assertIn("tp: 8 ranks cannot share 4 heads", page)
        self.assertEqual(self.run_on(self.REFERENCE, row, more=["--ranks", "8", "--model", "nano"])[0], 1)

    def test_paths_are_seen_from_where_it_is_called(self):
        with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
            Path("t.txt").write_text("text " * 400)
            args = compare.parse_arguments(["--data", "t.txt", "--out", "page"])
            self.assertEqual(args.data, str(Path("t.txt").resolve()))
            self.assertEqual(args.out, Path("page").resolve())
        self.assertEqual(compare.parse_arguments([]).out, self.root / "build/report")

    def test_bad_flags(self):
        for words in [["--ranks", "3"], ["--steps", "0"], ["--bogus"], ["--backend", "gpu"],
                      ["--model", "huge"], ["--data", "nope.txt"], ["--data", "/"],
                      ["--out", __file__], ["--micro-batch", "3"],
                      ["--data", __file__, "--seq-len", "99999"]]:
            said = io.StringIO()
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(said):
                compare.main(words)
            self.assertEqual(ended.exception.code, 2)
            self.assertEqual(said.getvalue().count("\n"), 1)

    def test_plans(self):
        ddp, shared = Row("07", "07_ddp", "ddp", "--ranks 2"), Row("11", "11_tensor_parallel", "shared", "--tp 2")
        status, screen, page = self.run_on(self.REFERENCE, ddp, shared)
        self.assertEqual(status, 0, screen)
        lines = [re.sub("<[^>]*>", " ", line).split() for line in re.findall("<tr>.*?</tr>", page)]
        found = [line for line in lines if line[2:3] in (["yes"], ["no"])]
        self.assertEqual([line[:4] for line in found], [["07", "ddp", "no", "1&times;1&times;64&times;1"],
                                                        ["11", "shared", "yes", "2&times;1&times;32&times;1"]])
        # Peak with and without Workspace, states; of what does not fit there is no time.
        self.assertEqual(found[0][4:], ["105.0", "101.0", "100.0"])
        self.assertEqual(found[1][4:], ["7.0", "3.0", "2.0", "5.00", "50.0%", "20.0%", "20.0%"])
        self.assertIn("70.8 GiB", page)
        ids = re.findall(r'\bid="([^"]*)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertIn("plans-without-axes_1", ids)
        text = (self.root / "report/plans.csv").read_text().splitlines()
        self.assertEqual([line.split(",")[3:7] + line.split(",")[8:9] for line in text[1:]],
                         [["1", "1", "64", "1", "False"], ["2", "1", "32", "1", "True"]])

    def test_workspace_can_be_left_out(self):
        _, _, page = self.run_on(self.REFERENCE)
        row = re.search(r'<tr><td><small>06.*?</tr>', page)[0]
        self.assertIn('<span class="with">0.0</span><span class="without">0.0</span>', row)
        for name, has in [("memory", True), ("memory-without", False)]:
            chart = re.search(rf'<svg(?:(?!</svg>).)*id="{name}-axes_1".*?</svg>', page, re.DOTALL)[0]
            self.assertEqual("Workspace" in chart, has, name)

    def test_a_planner_that_fails_is_a_fault(self):
        ddp, deep = Row("07", "07_ddp", "ddp", "--ranks 2"), Row("12", "12_pipeline_parallel", "deep", "--pp 2")
        for wanted, planner, said in [(ddp, "", "ch23_planner is not built"), (deep, PLANNER, "2 layouts, not one"),
                                      (ddp, "#!/bin/sh\necho wrong >&2; exit 2", "wrong")]:
            (self.root / "build/cpu/bin/ch23_planner").unlink(missing_ok=True)
            status, screen, page = self.run_on(self.REFERENCE, wanted, planner=planner)
            self.assertEqual(status, 1, screen)
            self.assertIn(said, page)

    def test_nothing_without_the_reference(self):
        status, screen, _ = self.run_on(Row("a", "SAME", "ddp"))
        self.assertEqual(status, 1)
        self.assertIn("nothing to compare with", screen)


if __name__ == "__main__":
    unittest.main()
