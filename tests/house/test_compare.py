#!/usr/bin/env python3
"""scripts/compare.sh: which programs it runs and plans, with which flags, and what it calls equal."""

import argparse
import json
import sys
import tempfile
import unittest
from pathlib import Path

from house import ROOT

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "compare")]
import chapter_tree  # noqa: E402
import compare  # noqa: E402
import plans  # noqa: E402
import runs  # noqa: E402
from rows import Row, flags_of, models, rows, suits, why_not  # noqa: E402
from traces import FIELDS, TraceError, first_difference, read_trace  # noqa: E402

ARGS = argparse.Namespace(data="text", backend="cpu", model="tiny", layers=None, heads=None, channels=None,
                          seq_len=None, batch=8, steps=20, micro_batch=2, ranks=2)


def value_of(words, flag):
    return words[words.index(flag) + 1]


def trace(steps=3, **other):
    """Lines of a trace; other={"loss": (step, text)} replaces one."""
    lines = [{"step": i, "loss": "0x1p+1", "grad_norm": "0x1p+0", "lr": "0x1p-1",
              "param_hash": f"{i:016x}"} for i in range(steps)]
    for name, (step, text) in other.items():
        lines[step][name] = text
    return lines


class Rows(unittest.TestCase):
    def test_a_chapter_gets_the_flags_it_knows(self):
        first = flags_of(Row("a", "01_sgd", "a"), ARGS)
        self.assertIn("--lr", first)
        self.assertNotIn("--schedule", first)
        self.assertNotIn("--layers", first)  # the model's
        self.assertEqual(value_of(flags_of(Row("a", "03_schedules", "a"), ARGS), "--warmup"), "2")
        self.assertNotIn("--clip", flags_of(Row("a", "03_schedules", "a"), ARGS))
        self.assertEqual(value_of(flags_of(Row("a", "04_clipping", "a"), ARGS), "--micro-batch"), "2")

    def test_the_flags_of_a_row_win(self):
        words = flags_of(Row("a", "11_tensor_parallel", "a", "--lr 0.5 --sequence-parallel --tp 2"), ARGS, steps=3)
        self.assertEqual(words.count("--lr"), 1)
        self.assertEqual(value_of(words, "--lr"), "0.5")
        self.assertEqual(value_of(words, "--steps"), "3")
        self.assertEqual(words.count("--tp"), 1)
        self.assertEqual(words[-2:], ["--tp", "2"])

    def test_all_chapters_and_no_other(self):
        for ranks in (2, 4, 8):
            self.assertEqual({row.chapter for row in rows(ranks)}, {name for name, row in chapter_tree.chapters().items() if row.trains})
            self.assertEqual(len({row.key for row in rows(ranks)}), len(rows(ranks)))
            groups = [row.group for row in rows(ranks)]
            self.assertEqual(groups, sorted(groups, key=groups.index))

    def test_a_branch_is_what_it_descends_from(self):
        branch = Row("a", "18_offload", "a")
        self.assertEqual((branch.group, branch.knows("10_zero3")), ("data parallel", True))
        self.assertFalse(branch.knows("11_tensor_parallel"))
        self.assertEqual(Row("a", "14_stability", "a").group, "one rank")

    def left_out(self, ranks, **other):
        args = argparse.Namespace(**{**vars(ARGS), "batch": 32, "micro_batch": 4, "ranks": ranks, **other})
        return {row.key: why_not(row, args) for row in rows(ranks)
                if row.key not in ("13", "20") and why_not(row, args)}

    def test_models(self):
        self.assertEqual([models()[name] for name in ("tiny", "llama-tiny")], [(4, 4, 64, 4), (4, 4, 64, 2)])
        self.assertEqual((models()["llama3-405b"][3], "moe-tiny" in models()), (8, False))  # 06 has no experts

    def test_rows_that_the_model_does_not_allow(self):
        self.assertEqual(self.left_out(2), {})
        self.assertEqual(self.left_out(4), {"12-interleaved": "4 layers do not make 8 equal parts"})
        self.assertEqual((self.left_out(4, model="nano"), self.left_out(4, layers=8)), ({}, {}))
        self.assertEqual(set(self.left_out(2, model="small")), {"12-interleaved"})
        self.assertIn("share sequences of 64", why_not(Row("", "20_", "", "--cp 2 --ranks 2"), ARGS))
        self.assertIn("4 ranks cannot share 2 heads of keys and values", self.left_out(4, model="llama-tiny").values())
        many = self.left_out(8)
        self.assertEqual(many["11-sequence"], "8 ranks cannot share 4 heads")
        self.assertEqual(set(many), {"11", "11-sequence", "12-gpipe", "12-1f1b", "12-interleaved",
                                     "12-zb-h1"})

    def test_all_rows_run_without_flags(self):
        args = compare.parse_arguments([])
        self.assertEqual({row.key: why_not(row, args) for row in rows(args.ranks) if why_not(row, args)}, {})
        sizes = flags_of(Row("a", "01_sgd", "a"), args)
        self.assertEqual([value_of(sizes, flag) for flag in ("--model", "--heads", "--channels", "--seq-len")],
                         ["small", "8", "128", "128"])
        self.assertNotIn("--heads", flags_of(Row("a", "01_sgd", "a"), compare.parse_arguments(["--model", "nano"])))

    def test_heads_that_are_given_count(self):
        more = {"heads": 8, "layers": 16, "model": "small", "ranks": 8, "batch": 16, "micro_batch": 1}
        self.assertEqual(self.left_out(**more), {})
        self.assertEqual(set(self.left_out(**{**more, "heads": 6})), {"11", "11-sequence"})

    def test_only_equal_ranks_are_compared(self):
        mesh = next(row for row in rows(2) if row.key == "13")
        said = {n: why_not(mesh, argparse.Namespace(**{**vars(ARGS), "model": "nano", "ranks": n})) for n in (2, 4, 8)}
        self.assertEqual(said, {2: "its 8 ranks are not the 2 of the others",
                                4: "its 8 ranks are not the 4 of the others", 8: ""})
        for row in rows(8):
            count = row.degree("--ranks") * row.degree("--tp") * row.degree("--dp") * row.degree("--pp")
            self.assertIn(count, (1, 8), row.key)

    def test_rows_that_the_batch_does_not_allow(self):
        few = self.left_out(4, model="nano", batch=8)
        self.assertEqual(few, {"12-interleaved": "4 stages with 2 chunks want 4, 8, ... "
                                                 "micro-batches, not 2"})
        self.assertEqual(set(self.left_out(2, batch=24)), {"07", "08", "09", "10", "15", "16", "18", "22"})
        self.assertEqual([suits(m, 24) for m in (1, 3, 8, 16, 24, 99)],
                         [True, False, True, False, True, True])

    def test_what_may_differ(self):
        may = {row.key for row in rows(2) if row.differs}
        self.assertEqual(may, {"01", "02", "03", "05", "14", "16", "19", "21", "22"})
        self.assertIn("GPT-2's block", [row.title for row in rows(2, model="llama-tiny")])
        cuda = {row.key for row in rows(2, "cuda") if row.differs}
        self.assertEqual(cuda - may, {"11", "11-sequence", "13"})


class Traces(unittest.TestCase):
    def read(self, lines, steps=3):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return read_trace(path, steps)

    def test_whole(self):
        self.assertEqual(self.read(trace()), trace())

    def test_not_whole(self):
        for lines in [trace(2), trace(4), trace()[1:] + trace()[:1], trace(loss=(1, "nan")),
                      trace(grad_norm=(2, "inf")), trace(lr=(0, "")), trace(param_hash=(0, "1")),
                      [{"step": 0}]]:
            with self.subTest(lines), self.assertRaises(TraceError):
                self.read(lines)

    def test_no_file(self):
        with self.assertRaises(TraceError):
            read_trace(Path("/nowhere/t.jsonl"), 1)

    def test_same(self):
        self.assertIsNone(first_difference(trace(), trace()))

    def test_every_field_counts(self):
        for name in FIELDS:
            found = first_difference(trace(), trace(**{name: (1, "0x3p+0")}))
            self.assertEqual((found.step, found.field, found.value), (1, name, "0x3p+0"))

    def test_the_first_is_told(self):
        found = first_difference(trace(), trace(loss=(2, "0x3p+0"), param_hash=(1, "f" * 16)))
        self.assertEqual((found.step, found.field), (1, "param_hash"))

    def test_a_shorter_run_is_another(self):
        self.assertEqual(first_difference(trace(3), trace(2)).field, "steps")


class Traffic(unittest.TestCase):
    def test_only_what_steps_send(self):
        shorter = {"comm": [{"rank": 0, "broadcast": {"wire_bytes": 9},
                             "all_reduce": {"wire_bytes": 15}}]}
        longer = {"comm": [{"rank": 0, "broadcast": {"wire_bytes": 9}, "send": {"wire_bytes": 8},
                            "all_reduce": {"wire_bytes": 25}}]}
        self.assertEqual(runs.step_traffic(shorter, longer, 2),
                         [{"rank": 0, "send": 4, "all_reduce": 5}])


class Plans(unittest.TestCase):
    def flags(self, key):
        row = next(row for row in rows(8) if row.key == key)
        return plans.flags_of_plan(row, "h100")

    def test_a_row_keeps_its_ranks_and_the_rest_share_the_batch(self):
        for key, axes in [("07", "1 1 64 1"), ("11", "8 1 8 1"), ("12-1f1b", "1 1 8 8"), ("13", "2 1 16 2"),
                          ("20", "1 2 32 1")]:
            words = self.flags(key)
            self.assertEqual(" ".join(value_of(words, f"--{axis}") for axis in ("tp", "cp", "dp", "pp")), axes, key)

    def test_a_row_is_planned_with_what_makes_it_this_row(self):
        stages = {key: value_of(self.flags(key), "--zero") for key in ("07", "08", "09", "10", "11", "13", "20")}
        self.assertEqual(stages, {"07": "0", "08": "1", "09": "2", "10": "3", "11": "0", "13": "1", "20": "2"})
        self.assertEqual([value_of(self.flags(f"12-{name}"), "--schedule") for name in ("gpipe", "zb-h1")],
                         ["gpipe", "zb-h1"])
        self.assertEqual(value_of(self.flags("12-interleaved"), "--chunks"), "2")
        self.assertNotIn("--chunks", self.flags("12-1f1b"))
        self.assertIn("--no-sequence-parallel", self.flags("11"))
        self.assertNotIn("--no-sequence-parallel", self.flags("11-sequence"))
        self.assertEqual(value_of(self.flags("16"), "--precision"), "fp8")

    def test_chapters_are_there(self):
        self.assertLessEqual(plans.CHAPTERS, set(chapter_tree.chapters()))


if __name__ == "__main__":
    unittest.main()
