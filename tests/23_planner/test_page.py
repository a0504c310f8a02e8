#!/usr/bin/env python3
"""chapters/23_planner/planner.html: it is that of today's sources, its WebAssembly answers as the
program does, and it works on a phone, in light and dark, and with the keyboard.

    test_page.py --program ch23_planner --part stale|answers|browser [--count N]

`stale` asks the program alone. The others want Chromium, and say that they are skipped without.
"""

import argparse
import json
import re
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from browser import CHROMIUM, Browser

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import planner_page  # noqa: E402

SKIPPED = 77
REFUSED = 'document.querySelector("#alert:not([hidden])") !== null'
ANSWERED = f'typeof REPORT !== "undefined" && (REPORT !== null || {REFUSED})'


class Stale(unittest.TestCase):
    def test_page_is_of_these_sources(self):
        stored = re.search(r'<meta name="digest" content="(\w+)">', planner_page.PAGE.read_text(encoding="utf-8"))
        self.assertEqual(stored and stored[1], planner_page.digest(ARGUMENTS.program),
                         "planner.html is stale: build it with scripts/planner_page.py")


class Tab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tab = Browser()
        cls.addClassCleanup(cls.tab.close)

    def open(self, question="", width=1280, dark=False):
        """The page with its answer or its refusal, and nothing folded away."""
        self.tab.events.clear()
        self.tab.open("about:blank")
        self.tab.look(width, dark=dark)
        self.tab.open(planner_page.PAGE.as_uri() + "#" + question)
        self.tab.wait(ANSWERED)
        self.tab.run('document.querySelectorAll("details").forEach((part) => { part.open = true; })')


class Answers(Tab):
    def test_equal_the_programs(self):
        """Every byte and every bit of every second: numbers of JSON are read back as they were."""
        self.open()
        asked = planner_page.questions(ARGUMENTS.count)
        with ThreadPoolExecutor(2) as pool:
            expected = list(pool.map(lambda question: planner_page.ask_program(ARGUMENTS.program, *question), asked))
        refused = 0
        for begin in range(0, len(asked), 100):
            part = json.dumps(asked[begin:begin + 100])
            for at, text in enumerate(self.tab.run(f"{part}.map((question) => PLANNER.answer(...question))"), begin):
                got, want = json.loads(text), expected[at]
                self.assertEqual({name: got.get(name) for name in want}, want, asked[at][0])
                refused += "error" in want
        self.assertTrue(0.05 * len(asked) < refused < 0.6 * len(asked), f"{refused} of {len(asked)} are refused")


class Page(Tab):
    def test_loads_alone_and_without_errors(self):
        self.open()
        methods = [event["method"] for event in self.tab.events]
        self.assertNotIn("Runtime.exceptionThrown", methods)
        self.assertNotIn("Log.entryAdded", methods)
        asked = [e["params"]["request"]["url"] for e in self.tab.events if e["method"] == "Network.requestWillBeSent"]
        self.assertEqual([url for url in asked if not url.startswith((planner_page.PAGE.as_uri(), "blob:"))], [])
        self.assertTrue(self.tab.run('document.getElementById("commit").textContent.length >= 10'))

    def test_nothing_overflows_a_phone(self):
        for question in ("", "model=llama3-405b&gpus=1024&batch=1024&pp=14&schedule=zb-h1", "model=gpt3-175b&gpus=1"):
            self.open(question, width=360)
            self.assertLessEqual(self.tab.run("document.documentElement.scrollWidth"), 360, question)
            wide = self.tab.run("""[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll *, textarea, option")
                && e.getBoundingClientRect().right > 361).map((e) => e.tagName + "#" + e.id + "." + e.className)""")
            self.assertEqual(wide, [], question)

    def test_a_slider_changes_the_table(self):
        self.open()
        before = self.tab.run('[REPORT.gpus, document.getElementById("layouts").textContent]')
        self.tab.run('document.getElementById("gpus-range").focus()')
        self.tab.press("ArrowRight")
        self.tab.wait(f"REPORT.gpus === {2 * before[0]}")
        self.assertEqual(self.tab.run('document.getElementById("gpus").value'), str(2 * before[0]))
        self.assertNotEqual(self.tab.run('document.getElementById("layouts").textContent'), before[1])

    def test_the_keyboard_reaches_all_controls(self):
        self.open()
        self.tab.run("""document.querySelectorAll("a, button, input, select, summary, textarea, [tabindex]").forEach(
            (e, i) => { e.dataset.number = i; })""")
        wanted = set(self.tab.run("""[...document.querySelectorAll("[data-number]")].filter((e) => e.checkVisibility())
            .map((e) => e.dataset.number)"""))
        self.assertGreater(len(wanted), 45)
        reached = set()
        for _ in range(len(wanted) + 5):
            self.tab.press("Tab")
            reached.add(self.tab.run("document.activeElement.dataset.number"))
        self.assertEqual(wanted - reached, set())
        self.assertEqual(self.tab.run("""[...document.querySelectorAll("input, select, textarea")].filter((e) =>
            e.labels.length === 0 && !e.ariaLabel).map((e) => e.id)"""), [], "controls without a label")

    def test_a_row_is_looked_at(self):
        self.open()
        self.tab.run('document.querySelectorAll("#layouts button")[4].focus()')
        self.tab.press("Enter")
        self.tab.wait('document.getElementById("chosen").textContent.startsWith("Layout 5:")')
        self.assertEqual(self.tab.run('document.querySelectorAll("#layouts tr[aria-current]").length'), 1)

    def test_dark_has_other_colours_and_both_can_be_read(self):
        found = []
        for dark in (False, True):
            self.open(dark=dark)
            found.append(self.tab.run("""["body", "#answer section", "#count", "#figures dt", "a"].map((name) => {
                const style = getComputedStyle(document.querySelector(name));
                return [style.color, style.backgroundColor]; })"""))
            luminance = lambda color: sum(w * ((c / 255 + 0.055) / 1.055) ** 2.4 for w, c in zip(
                (0.2126, 0.7152, 0.0722), map(int, re.findall(r"\d+", color)[:3])))
            card = found[-1][1][1]
            for color, _ in found[-1]:
                dim, bright = sorted((luminance(color), luminance(card)))
                self.assertGreater((bright + 0.05) / (dim + 0.05), 4.5, f"{color} on {card}")
        for light, dark in zip(*found):
            self.assertNotEqual(light[0], dark[0])
        self.assertNotEqual(found[0][1][1], found[1][1][1])

    def test_wrong_input_is_one_line(self):
        for question, says in (("gpus=many", "--gpus: many is no whole number"), ("gpus=0", "--gpus must be from 1 to"),
                               ("heads=7", "--heads 7 must divide"), ("own=1&model=llama9", "no model is called llama9"),
                               ("gpus=64&tp=8&pp=8&zero=3", "no layout is legal: ")):
            self.open(question)
            self.assertTrue(self.tab.run(REFUSED))
            text = self.tab.run('document.querySelector("#alert p").textContent')
            self.assertIn(says, text)
            self.assertNotIn("\n", text)
            self.assertTrue(self.tab.run('document.getElementById("results").hidden'))

    def test_what_does_not_fit_names_a_change_and_takes_it(self):
        self.open("model=llama2-7b&gpus=1&batch=8")
        self.assertIn("--gpus 2 does: ", self.tab.run('document.querySelector("#alert p").textContent'))
        self.tab.run('document.querySelector("#alert button").focus()')
        self.tab.press("Enter")
        self.tab.wait("REPORT !== null && REPORT.gpus === 2")
        self.assertTrue(self.tab.run('document.getElementById("alert").hidden'))

    def test_an_own_device_is_planned_for(self):
        self.open()
        before = self.tab.run("REPORT.layouts[0].step_seconds")
        self.tab.run("""(() => { const file = document.getElementById("file");
            file.value = file.value.replace(/bf16 = [0-9.]+/, "bf16 = 100");
            file.dispatchEvent(new Event("input", { bubbles: true })); })()""")
        self.tab.wait(f"REPORT.layouts[0].step_seconds > {2 * before}")


PARTS = {"stale": Stale, "answers": Answers, "browser": Page}


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--count", type=int, default=1000)
    ARGUMENTS = parser.parse_args()
    if ARGUMENTS.part != "stale" and not CHROMIUM:
        print("skipped: no Chromium here; scripts/setup.sh --all installs it")
        sys.exit(SKIPPED)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(PARTS[ARGUMENTS.part])
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    main()
