#!/usr/bin/env python3
"""chapters/23_planner/planner.html: it is that of today's sources, its WebAssembly answers as the
program does, and it works on a phone, in light and dark, and with the keyboard.

    test_page.py --program ch23_planner --part stale|browser [--count N]

`stale` asks the program alone. The other wants Chromium, and says that it is skipped without. Chromium
opens the page in a frame of another page, whose script looks at it and posts what it sees.
"""

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import planner_page  # noqa: E402

SKIPPED, PATIENCE = 77, 120  # seconds
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Opens questions one after the other and runs a function of the page's window and a way to wait on each.
HARNESS = """<!doctype html><iframe height=900></iframe><script>
const frame = document.querySelector("iframe");
async function until(window, condition) {
  for (let i = 0; i < 3000 && !window.eval(condition); ++i) await new Promise((done) => setTimeout(done, 20));
  if (!window.eval(condition)) throw condition;
}
async function open(question, width) {
  frame.width = width;
  await new Promise((done) => { frame.onload = done; frame.src = "/page?" + Math.random() + "#" + question; });
  const window = frame.contentWindow;
  await until(window, `typeof REPORT !== "undefined" && (REPORT !== null || document.querySelector("#alert:not([hidden])"))`);
  window.document.querySelectorAll("details").forEach((part) => { part.open = true; });
  return window;
}
(async () => {
  const seen = [];
  try {
    for (const [question, width, look] of QUESTIONS) {
      const window = await open(question, width);
      seen.push(await window.eval(look)(window.document, (condition) => until(window, condition)));
    }
  } catch (error) { seen.push(`FAILED: ${error} ${error.stack}`); }
  fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
})();
</script>"""


def seen_by_chromium(*questions, flags=()):
    """What the functions of (question, width, function) give, in their order."""
    page, seen = planner_page.PAGE.read_bytes(), queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = page if self.path.startswith("/page") else HARNESS.replace("QUESTIONS", json.dumps(questions)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
        browser = subprocess.Popen([CHROMIUM, "--headless", *sandbox, "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}", *flags,
                                    "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_port}/"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return seen.get(timeout=PATIENCE)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


class Stale(unittest.TestCase):
    def test_page_is_of_these_sources(self):
        stored = re.search(r'<meta name="digest" content="(\w+)">', planner_page.PAGE.read_text(encoding="utf-8"))
        self.assertEqual(stored and stored[1], planner_page.digest(ARGUMENTS.program),
                         "planner.html is stale: build it with scripts/planner_page.py")

    def test_it_loads_nothing(self):
        page = planner_page.PAGE.read_text(encoding="utf-8")
        self.assertNotRegex(page, r"""<link|<script[^>]+src|@import|url\(|XMLHttpRequest|fetch\((?!"?data:)""")


class Page(unittest.TestCase):
    def looks(self, questions, function, width=1280, **how):
        """What the function gives of each question, in one browser: it takes two seconds to start."""
        seen = seen_by_chromium(*((question, width, function) for question in questions), **how)
        self.assertFalse(str(seen[-1]).startswith("FAILED"), seen[-1])
        return seen

    def look(self, question, function, **how):
        return self.looks([question], function, **how)[0]

    def test_answers_are_the_programs(self):
        """Every byte and every bit of every second: numbers of JSON are read back as they were."""
        asked = planner_page.questions(ARGUMENTS.count)
        with ThreadPoolExecutor(2) as pool:
            expected = list(pool.map(lambda question: planner_page.ask_program(ARGUMENTS.program, *question), asked))
        answers = self.look("", f"() => {json.dumps(asked)}.map((question) => JSON.parse(PLANNER.answer(...question)))")
        for question, got, want in zip(asked, answers, expected, strict=True):
            self.assertEqual({name: got.get(name) for name in want}, want, question[0])
        refused = sum("error" in want for want in expected)
        self.assertTrue(0.05 * len(asked) < refused < 0.6 * len(asked), f"{refused} of {len(asked)} are refused")

    def test_nothing_overflows_a_phone(self):
        wide = """(document) => [document.documentElement.scrollWidth, [...document.querySelectorAll("main *")].filter((e) =>
            !e.closest(".scroll *, textarea, option") && e.getBoundingClientRect().right > 361).map((e) => e.tagName + "#" + e.id)]"""
        questions = ["", "model=llama3-405b&gpus=1024&batch=1024&pp=14&schedule=zb-h1", "model=gpt3-175b&gpus=1"]
        for question, (width, elements) in zip(questions, self.looks(questions, wide, width=360), strict=True):
            self.assertTrue(width <= 360 and not elements, f"{question}: {width}, {elements}")

    def test_controls(self):
        """They have labels, the keyboard reaches them, and they change the answer."""
        without, unreached, count = self.look("", """(document) => {
            const all = [...document.querySelectorAll("a, button, input, select, summary, textarea")].filter((e) => e.checkVisibility());
            return [all.filter((e) => e.matches("input, select, textarea") && e.labels.length === 0 && !e.ariaLabel).map((e) => e.id),
                    all.filter((e) => e.tabIndex < 0).map((e) => e.id), all.length]; }""")
        self.assertEqual((without, unreached), ([], []))
        self.assertGreater(count, 45)
        say = """(id, value) => { const e = document.getElementById(id); e.value = value(e.value);
            e.dispatchEvent(new Event("input", { bubbles: true })); }"""
        before, after, seconds = self.look("", f"""async (document, until) => {{
            const say = {say}, before = REPORT.gpus;
            say("gpus-range", (value) => Number(value) + 1);
            await until(`REPORT.gpus === ${{2 * before}}`);
            const seconds = REPORT.layouts[0].step_seconds, after = Number(document.getElementById("gpus").value);
            say("file", (text) => text.replace(/bf16 = [0-9.]+/, "bf16 = 100"));
            await until(`REPORT.layouts[0].step_seconds > 2 * ${{seconds}}`);
            return [before, after, seconds]; }}""")
        self.assertEqual(after, 2 * before, seconds)

    def test_both_schemes_can_be_read(self):
        colors = """(document) => ["body", "#answer section", "#count", "#figures dt", "a"].map((name) => {
            const style = getComputedStyle(document.querySelector(name)); return [style.color, style.backgroundColor]; })"""
        luminance = lambda color: sum(w * ((c / 255 + 0.055) / 1.055) ** 2.4 for w, c in zip(
            (0.2126, 0.7152, 0.0722), map(int, re.findall(r"\d+", color)[:3])))
        light, dark = (self.look("", colors, flags=[f"--blink-settings=preferredColorScheme={scheme}"]) for scheme in (1, 0))
        for found in (light, dark):
            for color, _ in found:
                dim, bright = sorted((luminance(color), luminance(found[1][1])))
                self.assertGreater((bright + 0.05) / (dim + 0.05), 4.5, f"{color} on {found[1][1]}")
        self.assertNotEqual(light[1], dark[1])

    def test_wrong_input_is_one_line(self):
        said = """(document) => [document.querySelector("#alert p").textContent, document.getElementById("results").hidden]"""
        wrong = {"gpus=many": "--gpus: many is no whole number", "gpus=0": "--gpus must be from 1 to",
                 "heads=7": "--heads 7 must divide", "own=1&model=llama9": "no model is called llama9",
                 "gpus=64&tp=8&pp=8&zero=3": "no layout is legal: ", "model=llama2-7b&gpus=1&batch=8": "the least takes "}
        for (question, says), (text, hidden) in zip(wrong.items(), self.looks(wrong, said), strict=True):
            self.assertTrue(says in text and "\n" not in text and hidden, f"{question}: {text}")


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--part", choices=["stale", "browser"], required=True)
    parser.add_argument("--count", type=int, default=300)
    ARGUMENTS = parser.parse_args()
    if ARGUMENTS.part == "browser" and not CHROMIUM:
        print("skipped: no Chromium here; scripts/setup.sh --all installs it")
        sys.exit(SKIPPED)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Stale if ARGUMENTS.part == "stale" else Page)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    main()
