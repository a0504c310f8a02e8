#!/usr/bin/env python3
"""scripts/slides.py: every chapter has slides, nothing on them runs over, and all is the README's."""

import re
import shutil
import sys
import unittest

from house import ROOT

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "labs")]
import slides  # noqa: E402
from engine.labs import all_labs, removed_lines  # noqa: E402

CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*"))


def lines_of_text(slide):
    """The height of a slide as Marp sets it: 26 px a line, and 15 px for code and tables."""
    count, code = 0.0, False
    for line in slide.splitlines():
        if line.startswith("```"):
            code = not code
        elif code or line.startswith("|"):
            count += 15 / 26
        elif line.startswith("$$"):
            count += 3
        elif line.strip() and not line.startswith(("#", "<img ")):
            count += -(-len(re.sub(r"\]\([^)]*\)|\\[a-zA-Z]+|[{}*`$]", "", line)) // 84)
    return count


class Slides(unittest.TestCase):
    def test_every_deck(self):
        """Nothing runs over, a slide is whole, and all on it is the README's."""
        for folder in CHAPTERS:
            shown = slides.deck(folder).partition("\n---\n")[2]
            text = (folder / "README.md").read_text(encoding="utf-8")
            self.assertEqual(shown.count("<img "), len(re.findall(r"^!\[", text.partition("\n## How to run it")[0], re.MULTILINE)), folder.name)
            for diff in re.findall(r"^```diff\n.*?^```$", shown, re.MULTILINE | re.DOTALL):
                for line in re.findall(r"^[-+] .*", diff, re.MULTILINE):
                    self.assertIn(line, text, folder.name)
            for number, slide in enumerate(map(str.strip, re.split(r"^---$", shown, flags=re.MULTILINE)), 1):
                where = f"{folder.name}, slide {number}:\n{slide[:400]}"
                self.assertLessEqual(lines_of_text(slide), 17, where)
                for code in re.findall(r"^```.*?^```$", slide, re.MULTILINE | re.DOTALL):
                    self.assertLessEqual(max(map(len, code.splitlines())), 130, where)
                self.assertRegex(slide, r"\A##? .+\n\n.", where)
                self.assertEqual(slide.count("\n```") % 2, 0, where)
                prose = re.sub(r"^```.*?^```$|`[^`]*`", "", slide, flags=re.MULTILINE | re.DOTALL)
                self.assertNotRegex(prose, r"\]\((?!https?:)", "a link that leads nowhere")

    def test_without_the_diff_no_line_of_a_lab_is_shown(self):
        for lab in (lab for lab in all_labs() if lab.has_chapter):
            text = slides.deck(ROOT / "chapters" / lab.chapter, diff_too=False)
            self.assertNotIn("```diff", text, lab.name)
            self.assertIn("\n## Write it yourself\n" if not lab.is_extension else "\n## The problem\n", text, lab.name)
            self.assertEqual([line for line in removed_lines(lab) if line in text], [], lab.name)

    @unittest.skipUnless(shutil.which("pandoc"), "no pandoc")
    def test_a_page_loads_nothing(self):
        text = slides.deck(ROOT / "chapters/12_pipeline_parallel")
        page = slides.as_page(text)
        self.assertEqual(page.count("<section>"), len(re.findall(r"^---$", text, re.MULTILINE)) - 1)
        self.assertNotRegex(page, r"<script|<link|@import|(?:src=\"|url\()(?!data:)")
        self.assertIn("<math ", page)


if __name__ == "__main__":
    unittest.main()
