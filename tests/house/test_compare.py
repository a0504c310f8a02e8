#!/usr/bin/env python3
"""scripts/compare.sh: which programs it runs, what it calls equal; and, on programs that are made
up, its page and when it fails."""

import argparse
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
import chapter_tree  # noqa: E402
import compare  # noqa: E402
import runs  # noqa: E402
from rows import Row, rows  # noqa: E402

ARGS = argparse.Namespace(data="text", tokenizer=None, backend="cpu", model="tiny", layers=None, heads=None, channels=None,
                          seq_len=None, batch=8, steps=20, micro_batch=2, ranks=2)
LINE = {"step": 0, "loss": "0x1p+1", "grad_norm": "0x1p+0", "lr": "0x1p-1", "param_hash": "0" * 16}


class Rows(unittest.TestCase):
    def test_all_chapters_and_no_other(self):
        trained = {name for name, row in chapter_tree.chapters().items() if row.trains}
        for ranks in (2, 4, 8):
            self.assertEqual({row.chapter for row in rows(ranks)}, trained)
            self.assertEqual(len({row.key for row in rows(ranks)}), len(rows(ranks)))
            groups = [row.group for row in rows(ranks)]
            self.assertEqual(groups, sorted(groups, key=groups.index))

    def test_only_equal_ranks_are_compared(self):
        self.assertEqual({row.ranks for row in rows(8)}, {1, 8})
        mesh = next(row for row in rows(2) if row.key == "13")
        self.assertEqual(compare.run_one(mesh, ARGS), "its 8 ranks are not the 2 of the others")

    def test_what_may_differ(self):
        may = {row.key for row in rows(2) if row.differs}
        self.assertEqual(may, {"01", "02", "03", "05", "14", "16", "19", "21", "22", "26", "27", "32", "36"})
        self.assertEqual({row.key for row in rows(2, "cuda") if row.differs} - may, {"11", "11-sequence", "13", "33"})

    def test_every_field_of_a_trace_counts(self):
        self.assertEqual(runs.difference([LINE], [LINE]), "")
        for name in runs.FIELDS:
            self.assertEqual(runs.difference([LINE], [{**LINE, name: "x"}]), f"step 0, {name}: x, not {LINE[name]}")

    def test_traffic_is_only_what_steps_send(self):
        shorter, longer = ({"comm": [{"rank": 0, "broadcast": {"wire_bytes": 9}, "all_reduce": {"wire_bytes": n}}]} for n in (15, 25))
        self.assertEqual(runs.step_traffic(shorter, longer, 2), [{"all_reduce": 5}])


# A program: writes what --report and --trace want. An update of OTHER at step 1 is not the others', SLOW
# takes twice as long, and REFUSES takes no flags.
PROGRAM = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
a = sys.argv
chapter = Path(a[0]).name[2:]
if chapter == "REFUSES":
    print("error: --tp 2 is not legal here", file=sys.stderr)
    sys.exit(2)
steps, ranks = int(a[a.index("--steps") + 1]), 2 if "--ranks" in a else 1
both = dict(predicted=8, measured=8)
Path(a[a.index("--report") + 1]).write_text(json.dumps(dict(
    tokens_per_second=1.0, step_ms_median=1.0 + (chapter == "SLOW"),
    layout=dict(ranks=ranks, dp=ranks, cp=1, tp=1, pp=1, threads=1, micro_batch=1),
    model=dict(layers=4, heads=4, channels=8, seq_len=16, vocab=256, parameters=1234),
    memory=[dict(rank=r, Param=both, Grad=both, Workspace=both) for r in range(ranks)],
    comm=[dict(rank=r, all_reduce=dict(wire_bytes=100 + 7 * steps)) for r in range(ranks)])))
line = lambda i: dict(step=i, loss="0x1p+1", grad_norm="0x1p+0", lr="0x1p-1",
                      param_hash="%016x" % (i + (chapter == "OTHER" and i == 1)))
if "--trace" in a:
    Path(a[a.index("--trace") + 1]).write_text("".join(json.dumps(line(i)) + "\\n" for i in range(steps)))
else:
    open("turns", "a").write(f"{chapter} {steps}\\n")
"""


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "charts need matplotlib")
class Whole(unittest.TestCase):
    """compare.main() on a tree of made-up programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for target, name, value in [(runs, "ROOT", self.root), (compare, "ROOT", self.root), (compare, "build", lambda args: None)]:
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_on(self, *wanted, more=()):
        """Exit status, screen and page; a program for chapter 06 and for each row but those of NOT_BUILT."""
        wanted, bin_ = [Row("06", "06_x", "kept"), *wanted], self.root / "build/cpu/bin"
        bin_.mkdir(parents=True, exist_ok=True)
        (self.root / "text").write_text("text " * 400)
        programs = {row.chapter: PROGRAM for row in wanted if row.chapter != "NOT_BUILT"}
        for name, program in programs.items():
            (bin_ / f"ch{name}").write_text(program)
            (bin_ / f"ch{name}").chmod(0o755)
        screen = io.StringIO()
        with mock.patch.object(compare, "rows", lambda *_: wanted), \
             mock.patch.multiple(Row, group="one rank", knows=lambda *_: True), \
             contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            status = compare.main(["--steps", "4", "--rounds", "1", "--data", str(self.root / "text"), "--out",
                                   str(self.root / "report"), *more])
        return status, screen.getvalue(), (self.root / "report/index.html").read_text()

    def test_equal(self):
        status, screen, page = self.run_on(Row("a", "SLOW", "slow", "--ranks 2"), more=["--ranks", "2", "--rounds", "2"])
        self.assertEqual(status, 0, screen)
        self.assertIn("2 runs, 1 result", page)
        ids = re.findall(r'\bid="([^"]*)"', page)
        self.assertEqual(len(ids), len(set(ids)))  # of all charts together
        self.assertNotIn("http", page.replace("http://www.w3.org/", ""))  # needs no network
        turns = [line for line in (self.root / "turns").read_text().splitlines() if line.endswith(" 4")]
        self.assertEqual(turns, ["06_x 4", "SLOW 4"] * 2)  # in turns
        self.assertIn("<small>0.50 to 0.50</small>", page)
        self.assertNotIn("one round says little", page)

    def test_other_bits(self):
        status, screen, page = self.run_on(Row("a", "OTHER", "zero"))
        self.assertEqual(status, 1)
        self.assertIn("step 1, param_hash", screen)
        self.assertIn("differs, step 1", page)
        self.assertIn("Broken", page)
        status, screen, page = self.run_on(Row("a", "OTHER", "bf16", "", "16 bits"))
        self.assertEqual(status, 0, screen)
        self.assertIn("16 bits", page)

    def test_what_cannot_run(self):
        """A refusal is a fault where nobody has chosen a layout."""
        status, screen, page = self.run_on(Row("a", "REFUSES", "tp"))
        self.assertEqual(status, 1)
        self.assertIn("FAILED: --tp 2 is not legal here", screen)
        self.assertIn("--tp 2 is not legal here", page)
        status, screen, page = self.run_on(Row("a", "REFUSES", "tp"), Row("b", "NOT_BUILT", "mesh"), more=["--batch", "4"])
        self.assertEqual(status, 0, screen)
        self.assertIn("left out: --tp 2 is not legal here", screen)
        self.assertIn("NOT_BUILT is not built", page)


if __name__ == "__main__":
    unittest.main()
