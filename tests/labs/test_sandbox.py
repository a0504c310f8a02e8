#!/usr/bin/env python3
"""Programs that misbehave: each is ended, nothing of it goes on, and nothing it says is believed."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

import house_of_labs  # noqa: F401
from engine import sandbox

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class Misbehaves(unittest.TestCase):
    def outcome(self, code, seconds=20, megabytes=512):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            begin = time.monotonic()
            found = sandbox.run([PYTHON, "-c", code], folder, seed=1, seconds=seconds, megabytes=megabytes, isolate=sandbox.can_isolate())
            self.assertLess(time.monotonic() - begin, seconds + 10)
        # Nothing is left of it.
        self.assertEqual(sandbox.descendants(os.getpid(), None), set())
        return found

    def test_one_that_behaves(self):
        code = "import os; fd, token, seed = input().split(); os.write(int(fd), f'{token}\\tc\\tg\\tcount\\t{seed}\\n'.encode()); print('hello')"
        found = self.outcome(code)
        self.assertEqual((found.ended, found.rows, found.printed), ("", [("c", "g", "count", "1")], "hello\n"))

    def test_prints_a_score(self):
        found = self.outcome("print('score: 100'); print('c\\tg\\tcount\\t1')")
        self.assertEqual(found.rows, [])

    def test_writes_rows_without_the_token(self):
        code = "import os; fd = int(input().split()[0]); os.write(fd, b'0' * 32 + b'\\tc\\tg\\tcount\\t1\\n')"
        self.assertEqual(self.outcome(code).rows, [])

    def test_sleeps(self):
        self.assertEqual(self.outcome("import time; time.sleep(60)", seconds=1).ended, "still running after 1 s")

    def test_computes_without_end(self):
        self.assertEqual(self.outcome("while True: pass", seconds=1).ended, "still running after 1 s")

    def test_eats_memory(self):
        found = self.outcome("b = [bytearray(1 << 26) for _ in range(100)]")
        self.assertIn("MemoryError", found.printed)

    def test_forks_without_end(self):
        found = self.outcome("import os\nwhile True: os.fork()", seconds=5)
        self.assertNotEqual(found.ended, "")

    def test_leaves_something_behind(self):
        code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(60)\n"
        self.outcome(code)

    def test_prints_without_end(self):
        self.assertNotEqual(self.outcome("while True: print('x' * 10000)").ended, "")

    def test_crashes(self):
        self.assertEqual(self.outcome("import os; os.abort()").ended, "ended by SIGABRT")

    @unittest.skipUnless(sandbox.can_isolate(), "not root: the program has this user's rights")
    def test_has_no_rights(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder) / "reference.h"
            secret.write_text("secret", encoding="utf-8")
            found = self.outcome(f"print(open('{secret}').read())")
            self.assertIn("PermissionError", found.printed)
        self.assertIn("0 0", self.outcome("import os; print(int(os.getuid() == 0), len(os.getgroups()))").printed)


if __name__ == "__main__":
    unittest.main()
