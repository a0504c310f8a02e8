#!/usr/bin/env python3
"""What a reader sees of every picture, on white and on black, in a print and in a preview: no background,
no black letters, a first frame that is the picture."""

import re
import unittest
import xml.etree.ElementTree as xml

from house import ROOT

WHITE = re.compile(r"#fff(fff)?|white", re.I)
BLACK = re.compile(r"#000(000)?|black", re.I)
AT_REST = {"transform:none", "opacity:1"}  # of an element that no animation has touched


def pictures():
    return [path for folder in ("chapters", "docs", "bench") for path in sorted((ROOT / folder).rglob("*.svg"))]


def style_of(element, name):
    """A property, from an attribute or from `style`."""
    said = re.search(rf"(?:^|;)\s*{name}:\s*([^;]+)", element.get("style", ""))
    return said[1].strip() if said else element.get(name, "")


def backgrounds(text):
    """White areas."""
    return [element.tag for element in xml.fromstring(text).iter()
            if element.tag.endswith(("rect", "path")) and WHITE.fullmatch(style_of(element, "fill"))]


def dark_letters(text):
    """Text, and the outlines that Matplotlib makes of text, in black: by name or by default."""
    found, sheet = [], "fill" in "".join(re.findall(r"<style.*?</style>", text, re.S))

    def look(element, fill, in_text):
        fill = style_of(element, "fill") or fill
        in_text = in_text or element.get("id", "").startswith("text_") or element.tag.endswith("}text")
        drawn = element.tag.endswith("}text") or (in_text and element.tag.endswith("}use"))
        if drawn and not (sheet and element.tag.endswith("}text")) and (not fill or BLACK.fullmatch(fill)):
            found.append(element.get("id") or "".join(element.itertext())[:20])
        for child in element:
            look(child, fill, in_text)

    look(xml.fromstring(text), "", False)
    return found


def faded(text):
    """Animations whose first frame is another picture."""
    found = []
    for name, frames in re.findall(r"@keyframes\s+(\w+)\s*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", text):
        first = [said for share, said in re.findall(r"([^{}]*)\{([^{}]*)\}", frames)
                 if "0%" in re.split(r"[,\s]+", share.strip())]
        said = {one.replace(" ", "") for one in ";".join(first).split(";") if one.strip()}
        if len(first) != 1 or not said <= AT_REST:
            found.append(name)
    return found


class Static(unittest.TestCase):
    def test_every_picture(self):
        self.assertGreater(len(pictures()), 20)
        for path in pictures():
            text = path.read_text(encoding="utf-8")
            for check in (backgrounds, dark_letters, faded):
                with self.subTest(f"{path.relative_to(ROOT)}: {check.__name__}"):
                    self.assertEqual(check(text), [])

    def test_planted(self):
        svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 50">{}</svg>'.format
        self.assertEqual(len(backgrounds(svg('<rect width="100" height="50" fill="#fff"/>'))), 1)
        self.assertEqual(len(backgrounds(svg('<path d="M 0 9 L 90 9 L 90 0 z" style="fill: #ffffff"/>'))), 1)
        self.assertEqual(dark_letters(svg("<text>one</text>")), ["one"])
        self.assertEqual(dark_letters(svg('<g id="text_1"><g><use/></g></g>')), [None or ""])
        self.assertEqual(dark_letters(svg('<g fill="#808890"><text>one</text></g>')), [])
        frames = "@keyframes a{{0%{{opacity:{}}}50%{{opacity:.5}}}}".format
        self.assertEqual(faded(frames("0.1")), ["a"])
        self.assertEqual(faded(frames("1")), [])
        self.assertEqual(faded("@keyframes a{50%{opacity:1}}"), ["a"])


if __name__ == "__main__":
    unittest.main()
