#!/usr/bin/env python3
"""TensorBoard and tensorboardX of PyPI read the event files of chapter 29: every name, step, value.

    test_events.py --build build/cpu              skipped (status 77) unless they are installed
    test_events.py --build build/cpu --install    installs them in build/clients first
"""

import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from environment import enter, run

ARGS = enter("events", ["tensorboard>=2.21,<2.22", "tensorboardX>=2.6,<2.7"])
import numpy  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.record_writer import masked_crc32c  # noqa: E402

FLAGS = ("--data text.txt --model nano --layers 2 --batch 8 --threads 1 --eval-every 2 --watch-every 2 "
         "--event-clock step --quiet").split()
CURVES = {"loss": "loss", "gradient_norm": "grad_norm", "learning_rate": "lr"}


class Events(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "text.txt").write_text("In the beginning was the Word. " * 300)
        # Steps 4 and 5 are taken twice: the second run loses them, and the third goes another way.
        first = cls.train("--steps 4 --save half --trace first")
        cls.train("--steps 6 --load half --lr 1e-4 --trace lost")
        cls.tear()
        rest = cls.train("--steps 8 --load half --ranks 2 --trace rest")
        cls.wanted = [json.loads(line) for line in (first + rest).splitlines()]

    @classmethod
    def train(cls, flags):
        flags = flags.split()
        subprocess.run([ARGS.programs / "ch29_monitor", *FLAGS, *flags, "--events", "events"], cwd=cls.folder, check=True)
        return (cls.folder / flags[-1]).read_text()

    @classmethod
    def tear(cls):
        """The last file as a program leaves it that was killed while it wrote."""
        last = sorted((cls.folder / "events").iterdir())[-1]
        with open(last, "ab") as file:
            file.write(last.read_bytes()[:20])

    def records(self):
        """The data of all records of the curves, checked by tensorboardX's own CRC."""
        for path in sorted((self.folder / "events").iterdir()):
            data = path.read_bytes()
            while data:
                n = int.from_bytes(data[:8], "little")
                head, body, data = data[:12], data[12:12 + n], data[12 + n:]
                self.assertEqual(int.from_bytes(head[8:], "little"), masked_crc32c(head[:8]))
                self.assertEqual(int.from_bytes(data[:4], "little"), masked_crc32c(body))
                data = data[4:]
                yield body

    def test_tensorboardx_has_the_same_messages(self):
        seen = 0
        for body in self.records():
            event = Event.FromString(body)
            self.assertEqual(event.SerializeToString(), body)
            seen += len(event.summary.value)
        self.assertGreater(seen, 900)

    def test_tensorboard_has_every_value(self):
        read = EventAccumulator(str(self.folder / "events"), size_guidance={"scalars": 0})
        read.Reload()
        for tag, name in CURVES.items():
            self.assertEqual([(e.step, e.wall_time, e.value) for e in read.Scalars(tag)],
                             [(w["step"], w["step"], float(numpy.float32(float.fromhex(w[name]))))
                              for w in self.wanted], tag)
        losses = read.Scalars("validation_loss")
        self.assertEqual([e.step for e in losses], [1, 3, 5, 7])
        for loss, bits in zip(losses, read.Scalars("validation_bits_per_byte"), strict=True):  # tokens are bytes
            self.assertAlmostEqual(bits.value, loss.value / math.log(2), 5)
        # All that tensorboardX reads; a session start drops later steps.
        values = {}
        for event in (Event.FromString(body) for body in self.records()):
            if event.session_log.status == SessionLog.START:
                values = {key: value for key, value in values.items() if key[1] < event.step}
            values.update({(v.tag, event.step): v.simple_value for v in event.summary.value})
        names = {tag for tag, _ in values}
        self.assertEqual(set(read.Tags()["scalars"]), names)
        self.assertEqual(sum(name.startswith("update_ratio/") for name in names), 2 + 2 * 12 + 3)
        self.assertEqual({(tag, e.step): e.value for tag in names for e in read.Scalars(tag)}, values)


if __name__ == "__main__":
    run(Events)
