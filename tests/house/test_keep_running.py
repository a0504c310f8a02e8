#!/usr/bin/env python3
"""scripts/keep_running.sh, of a program and an mpirun that only pretend."""

import shutil
import unittest

from calls import FromAFolder


class KeepRunning(FromAFolder):
    # Ranks are a power of two. A run of mpirun saves if SAVES says so, and dies until the third.
    PROGRAM = """#!/bin/sh
while [ "$1" != --ranks ]; do shift; done
case $2 in 1 | 2 | 4 | 8) ;; *) echo "error: $2 ranks" >&2; exit 2 ;; esac
[ -n "$BROKEN" ] && echo "error: --batch x; legal are whole numbers" >&2 && exit 2
exit 0
"""
    MPIRUN = """#!/bin/sh
echo "$2 $4 $5 $6 $7 $8" >>runs
n=$(wc -l <runs)
[ -n "$SAVES" ] && mkdir -p d && ln -sfn generation-$n d/current
[ -n "$SILENT" ] && echo "error: rank 0 on one: waited 600 s for rank 3 in recv of 5 F32 (from 3)" >&2
[ -n "$TRACED" ] && echo "steps of run $n" >"$TRACED.partial"
[ -n "$EVENTS" ] && mkdir -p "$EVENTS" && echo "steps of run $n" >>"$EVENTS/curves"
[ "$n" -lt 3 ] && exit ${DIES-137}
[ -n "$TRACED" ] && mv "$TRACED.partial" "$TRACED"
exit 0
"""

    def kept_running(self, *words, flags=(), **variables):
        self.pretend("program", text=self.PROGRAM)
        self.pretend("mpirun", text=self.MPIRUN)
        (self.here / "runs").unlink(missing_ok=True)
        flags = flags or ["--save", "d"]
        done = self.call("keep_running.sh", "--ranks", "8", *words, "--", str(self.programs / "program"), *flags, **variables)
        return done, [line.strip() for line in (self.here / "runs").read_text().splitlines()]

    def test_keep_running(self):
        done, runs = self.kept_running(SAVES="1")
        self.assertEqual((done.returncode, runs), (0, ["8 --save d", *2 * ["4 --save d --load d"]]))
        shutil.rmtree(self.here / "d")
        self.pretend("tee", text='#!/bin/sh\nsleep 0.2\nexec /usr/bin/tee "$@"\n')  # on a busy machine
        done, runs = self.kept_running("--per-host", "4", SAVES="1", SILENT="1")
        self.assertEqual((done.returncode, len(runs), "no rank is left" in done.stderr), (137, 2, True), done.stderr)
        shutil.rmtree(self.here / "d")
        done, runs = self.kept_running()
        self.assertEqual((done.returncode, runs), (137, ["8 --save d", "4 --save d"]))
        self.assertIn("two deaths after the beginning without a new checkpoint", done.stderr)
        for words in [["--ranks", "0"], ["--ranks", "2", "--"], ["--ranks", "2", "--", "/bin/true"],
                      ["--ranks", "2", "--", "/bin/true", "--save", "d", "--load", "d"]]:
            done = self.call("keep_running.sh", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)

    def test_whole_checkpoints_without_a_link_are_gone_on_from(self):
        for step in (90, 120):
            (self.here / f"d/generation-{step}.1").mkdir(parents=True)
            (self.here / f"d/generation-{step}.1/checkpoint.json").write_text("{}")
        left = self.here / "d/generation-200.1"  # of a save that was killed
        left.mkdir()
        done, runs = self.kept_running(flags=["--save", "d", "--overwrite"], DIES="3")
        self.assertEqual((done.returncode, runs), (3, ["8 --save d --overwrite --load d"]))
        self.assertIn("8 ranks, from generation-120.1\n", done.stdout)
        shutil.rmtree(self.here / "d")
        left.mkdir(parents=True)
        done, runs = self.kept_running(DIES="3")
        self.assertEqual((done.returncode, runs), (3, ["8 --save d"]))

    def test_no_step_of_a_run_that_died_is_lost(self):
        """What it wrote stands beside the file of the run that goes on, also if none does."""
        for flag in ("--trace", "--timeline", "--report"):
            for words in [[flag, "t"], [f"{flag}=t"]]:
                (self.here / "t.1.partial").write_text("of another day\n")
                done, _ = self.kept_running(flags=["--save", "d", *words], SAVES="1", TRACED="t")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual({path.name: path.read_text() for path in self.here.glob("t*")},
                                 {"t.1.partial": "of another day\n", "t.2.partial": "steps of run 1\n",
                                  "t.3.partial": "steps of run 2\n", "t": "steps of run 3\n"})
                self.assertIn("keep_running.sh: what the run before wrote is now t.2.partial\n", done.stdout)
                for path in self.here.glob("t*"):
                    path.unlink()
                shutil.rmtree(self.here / "d")
        self.kept_running(flags=["--save", "d", "--trace", "t"], TRACED="t")  # which gives up
        self.assertEqual(sorted(path.name for path in self.here.glob("t*")), ["t.1.partial", "t.2.partial"])
        (self.here / "t.partial").write_text("of a run that was stopped, and this script with it\n")
        self.kept_running(flags=["--save", "d", "--trace", "t"], SAVES="1", TRACED="t")
        self.assertIn("of a run that was stopped", (self.here / "t.3.partial").read_text())

    def test_events_of_a_run_without_a_checkpoint_are_put_aside(self):
        """A run that goes on adds to its folder; one from the beginning would refuse it."""
        curves = lambda: {path.parent.name: path.read_text() for path in self.here.glob("ev*/curves")}
        self.kept_running(flags=["--save", "d", "--events", "ev/"], EVENTS="ev")
        self.assertEqual(curves(), {"ev.1": "steps of run 1\n", "ev": "steps of run 2\n"})
        done, _ = self.kept_running(flags=["--save", "d", "--events=ev"], SAVES="1", EVENTS="ev")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(curves(), {"ev.1": "steps of run 1\n", "ev.2": "steps of run 2\n",
                                    "ev": "".join(f"steps of run {n}\n" for n in (1, 2, 3))})

    def test_why_flags_are_refused(self):
        self.pretend("program", text=self.PROGRAM)
        done = self.call("keep_running.sh", "--ranks", "3", "--", str(self.programs / "program"), "--save", "d", BROKEN="1")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.splitlines()[0], "error: --batch x; legal are whole numbers")
        self.assertIn("no number of ranks up to 3 is legal for: ", done.stderr.splitlines()[1])

    def test_a_launcher_that_is_not_there_is_no_death(self):
        self.pretend("program", text=self.PROGRAM)
        done = self.call("keep_running.sh", "--ranks", "2", "--mpirun", "no-mpirun -x", "--", str(self.programs / "program"), "--save", "d")
        self.assertEqual((done.returncode, done.stdout, self.left()), (2, "", []))
        self.assertRegex(done.stderr, "^keep_running.sh: no program 'no-mpirun'; legal is [^\n]*\n$")
        for status in (126, 127):
            done, runs = self.kept_running(DIES=str(status))
            self.assertEqual((done.returncode, len(runs)), (status, 1))


if __name__ == "__main__":
    unittest.main()
