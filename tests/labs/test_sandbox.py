#!/usr/bin/env python3
"""Programs that misbehave: each is ended, nothing of it goes on, and nothing it says is believed."""

import errno
import os
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

import house_of_labs  # noqa: F401
from engine import sandbox
from engine.room import Room

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class Misbehaves(unittest.TestCase):
    def outcome(self, code, seconds=20, megabytes=512):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            begin = time.monotonic()
            found = sandbox.run([PYTHON, "-c", code], folder, "1 student", seconds=seconds, megabytes=megabytes, isolate=sandbox.can_isolate())
            self.assertLess(time.monotonic() - begin, seconds + 10)
        # Nothing is left of it.
        self.assertEqual(sandbox.descendants(os.getpid(), None), set())
        return found

    def test_one_that_behaves(self):
        code = "import os; fd, seed, who = input().split(); os.write(int(fd), f'c\\tg\\tcount\\t{seed}\\n'.encode()); print('hello', who)"
        found = self.outcome(code)
        self.assertEqual((found.ended, found.rows, found.printed), ("", [("c", "g", "count", "1")], "hello student\n"))

    def test_what_is_no_row(self):
        """None of it is believed, and none of it ends the grader."""
        self.assertEqual(self.outcome("print('score: 100'); print('c\\tg\\tcount\\t1')").rows, [])
        written = lambda rows: self.outcome(f"import os; os.write(int(input().split()[0]), {rows!r})").rows  # noqa: E731
        for row in [b"c\tg\tcount\tmany\n", b"c\tg\twithout\t" + b"9" * 5000 + b"\n", b"c\tg\tf32\t3f8\n", b"c\tg\tf64\t0\n", b"\xff\t\n", b"c\tg\n"]:
            self.assertEqual(written(row), [], row)
        self.assertEqual(written(b"c\tg\ttext\tx\rx\n"), [("c", "g", "text", "x\rx")])

    def test_goes_on_without_end(self):
        for code in ["import os\nfd = int(input().split()[0])\nwhile True: os.write(fd, b'x' * 65536)", "import time; time.sleep(60)", "while True: pass"]:
            self.assertEqual(self.outcome(code, seconds=2).ended, "still running after 2 s")
        for code in ["import os\nwhile True: os.fork()", "while True: print('x' * 10000)"]:
            self.assertNotEqual(self.outcome(code, seconds=5).ended, "")

    def test_rows_without_end_take_no_memory(self):
        """64 MB of short rows took 1.8 GB."""
        many = sandbox.parse(b"c\tg\ttext\tx\n" * (sandbox.MOST_ROWS + 1))
        self.assertEqual((len(many), many[-1]), (sandbox.MOST_ROWS, ("c", "g", "text", "x")))

    def test_a_full_disk_is_nobodys_fault(self):
        full = dict.fromkeys(sandbox.LEAST_FREE, 1 << 60)
        for code in ["pass", "import time; time.sleep(60)"]:
            with unittest.mock.patch.object(sandbox, "LEAST_FREE", full), self.assertRaises(OSError) as raised:
                self.outcome(code)
            self.assertEqual(raised.exception.errno, errno.ENOSPC)
            self.assertEqual(sandbox.descendants(os.getpid(), None), set())

    @unittest.skipUnless(sandbox.can_isolate(), "not root: a quota is of a user's files")
    def test_fills_the_disk(self):
        write = "import time\nfor i in range(1000):\n  open(str(i), 'wb').write(b'x' * SIZE); time.sleep(0.002)"
        quota = {"--block-size=1": (8 << 20, "bytes"), "--inodes": (100, "files")}
        for size, what in [("(1 << 20)", "8,388,608 bytes"), ("1", "100 files")]:
            with unittest.mock.patch.object(sandbox, "QUOTA", quota):
                self.assertEqual(self.outcome(write.replace("SIZE", size)).ended, f"ended: its files have more than {what}")

    def test_a_number_without_account_and_processes(self):
        sandbox.free_user.cache_clear()
        self.addCleanup(sandbox.free_user.cache_clear)
        pick, person, group = unittest.mock.patch.object, unittest.mock.Mock(pw_uid=20001), unittest.mock.Mock(gr_gid=20003)
        with pick(sandbox, "NUMBERS", range(20000, 20004)), pick(sandbox, "processes", return_value=[(7, 1, 20000)]):
            with pick(sandbox.pwd, "getpwall", return_value=[person]), pick(sandbox.grp, "getgrall", return_value=[group]):
                self.assertEqual(sandbox.free_user(), 20002)

    def test_ends_badly(self):
        self.assertIn("MemoryError", self.outcome("b = [bytearray(1 << 26) for _ in range(100)]").printed)
        self.assertEqual(self.outcome("import os; os.abort()").ended, "ended by SIGABRT")
        self.assertEqual(self.outcome("import os; os.kill(os.getpid(), 40)").ended, "ended by signal 40")
        self.outcome("import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(60)\n")  # and leaves something behind

    def test_ctrl_c_leaves_nothing_running(self):
        with unittest.mock.patch.object(sandbox, "wait", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.outcome("import time; time.sleep(60)")
        self.assertEqual(sandbox.descendants(os.getpid(), None), set())

    @unittest.skipUnless(sandbox.can_isolate(), "not root: the program has this user's rights")
    def test_has_no_rights(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder) / "reference.h"
            secret.write_text("secret", encoding="utf-8")
            found = self.outcome(f"print(open('{secret}').read())")
            self.assertIn("PermissionError", found.printed)
        self.assertIn("0 0", self.outcome("import os; print(int(os.getuid() == 0), len(os.getgroups()))").printed)
        gains = "import ctypes; print('gains none', ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))"  # PR_GET_NO_NEW_PRIVS
        self.assertEqual(self.outcome(gains).printed, "gains none 1\n")

    @unittest.skipUnless(sandbox.has_own_network(), "may not unshare: programs have the network")
    def test_has_no_network(self):
        code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9))"
        self.assertIn("Network is unreachable", self.outcome(code).printed)


@unittest.skipUnless(sandbox.has_room(), "may not chroot: programs see what their user sees")
class Rooms(unittest.TestCase):
    def test_a_program_sees_its_room_alone(self):
        shell = os.path.realpath("/bin/sh")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            (Path(folder) / "secret").write_text("secret", encoding="utf-8")
            old = os.umask(0o077)  # as some have it
            room = Room(Path(folder) / "room")
            room.put_programs([shell])
            os.umask(old)
            look = f"echo /* /lib/*; for f in /proc/self /etc/passwd ../secret ../../secret {folder}/secret; do [ ! -e $f ] || echo $f; done"
            found = room.run([shell, "-c", f"{look}; echo > /home/mine; echo > /mine; echo > {shell}"])
            self.assertNotIn("secret", found.printed)
            self.assertNotIn("proc", found.printed)
            self.assertNotIn("passwd", found.printed)
            self.assertEqual(found.printed.count("cannot create"), 2, found.printed)
            self.assertTrue((room.home / "mine").is_file())


class FilesOfAProgram(unittest.TestCase):
    def test_a_trace_that_is_no_plain_file(self):
        """A link would lead root to what root alone may read; a FIFO would never end."""
        with tempfile.TemporaryDirectory() as folder:
            trace, other = Path(folder) / "trace.jsonl", Path(folder) / "reference.jsonl"
            other.write_text("1\n2\n", encoding="utf-8")
            self.assertEqual(sandbox.lines_of(other), ["1", "2"])
            for make in [lambda: None, lambda: trace.symlink_to(other), lambda: os.mkfifo(trace), trace.mkdir]:
                make()
                self.assertEqual(sandbox.lines_of(trace), [])
                trace.rmdir() if trace.is_dir() else trace.unlink(missing_ok=True)


if __name__ == "__main__":
    unittest.main()
