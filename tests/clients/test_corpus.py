#!/usr/bin/env python3
"""Filters and duplicates as datatrove of PyPI finds them, and ours.

    test_corpus.py --build build/cpu              skipped (status 77) unless it is installed
    test_corpus.py --build build/cpu --install    installs it in build/clients first

datatrove is given the words and sentences that ours cuts: its own tokenizer is another one.
"""

import json
import re
import subprocess
import tempfile
import unicodedata
import unittest
from pathlib import Path
from random import Random

from environment import enter, run

ARGS = enter("corpus", ["datatrove==0.10.1", "regex", "xxhash<4", "tokenizers"], count=1000)  # documents of a test
from datatrove.data import Document  # noqa: E402
from datatrove.pipeline.dedup import minhash  # noqa: E402
from datatrove.pipeline.filters import (c4_filters, fineweb_quality_filter, gopher_quality_filter,  # noqa: E402
                                        gopher_repetition_filter)
from datatrove.utils.text import TERMINAL_PUNCTUATION  # noqa: E402

# datatrove's name of a reason: ours.
REASONS = {
    "gopher": {"gopher_short_doc": "few_words", "gopher_long_doc": "many_words",
               "gopher_below_avg_threshold": "short_words", "gopher_above_avg_threshold": "long_words",
               "gopher_too_many_hashes": "hashes", "gopher_too_many_ellipsis": "ellipses",
               "gopher_too_many_bullets": "bullets", "gopher_too_many_end_ellipsis": "ellipsis_lines",
               "gopher_below_alpha_threshold": "no_letters", "gopher_enough_stop_words": "stop_words"},
    "repetition": {"dup_para_frac": "paragraphs", "dup_para_char_frac": "paragraph_characters",
                   "dup_line_frac": "lines", "dup_line_char_frac": "line_characters",
                   **{f"top_{n}_gram": f"top_{n}_gram" for n in (2, 3, 4)},
                   **{f"duplicated_{n}_n_grams": f"{n}_grams" for n in range(5, 11)}},
    "c4": {"lorem_ipsum": "lorem_ipsum", "curly_bracket": "braces", "too_few_sentences": "sentences"},
    "fineweb": {"line_punct_ratio": "punctuation", "short_line_ratio": "short_lines",
                "char_dup_ratio": "repeated_lines", "list_ratio": "lists"},
}
STOP_WORDS = ["the", "be", "to", "of", "and", "that", "have", "with"]


def split_sentences(line, *_):
    words = line.split()
    return [w for i, w in enumerate(words) if i == len(words) - 1 or re.search(r"[.?!][\"']*$", w)]


class Texts:
    """Random documents, each odd in a few ways."""

    def __init__(self, seed):
        self.random = Random(seed)

    def word(self, letters=None):
        return "".join(self.random.choice("abcdefghijklmnopqrstuvwxyzé") for _ in range(letters or self.random.randint(2, 8)))

    def odd(self):
        """How often an oddity of a document comes."""
        return self.random.choice([0, 0, 0, 0, 0.05, 0.1, 0.3, 0.5, 0.9])

    def words(self, count):
        stop, marks, numbers, dots, long, short, cited = (self.odd() for _ in range(7))
        draw = self.random.random
        made = []
        for _ in range(count):
            word = self.word()
            if draw() < max(0.1, stop) and self.stops:
                word = self.random.choice(STOP_WORDS)
            if draw() < long / 2:
                word = self.word(20)
            if draw() < short:
                word = self.word(1)
            if draw() < numbers / 2:
                word = "123"
            if draw() < marks / 3:
                word = "#"
            if draw() < dots / 3:
                word += self.random.choice(["...", "\u2026"])
            if draw() < cited / 5:
                word += self.random.choice(["[1]", "[]", "[edit]", "[citation needed]", "[x]", "[2][3].", " [4]"])
            made.append(word)
        return made

    def line(self):
        line = " ".join(self.words(self.random.randint(1, 3) if self.short else self.random.randint(4, 16)))
        if self.random.random() < self.bullets:
            line = self.random.choice(["- ", "•", " - "]) + line
        return line + self.random.choice(self.ends)

    def document(self):
        draw = self.random.random
        self.stops, self.short, self.bullets = draw() < 0.9, draw() < 0.15, self.odd()
        self.ends = self.random.choice([[".", "!", "?"], [".", ". ", '."', ""], ["", "", ""], ["...", "."], ["\u2026", "."]])
        lines, again = [], self.odd()
        for _ in range(self.random.choice([1, 3, 6, 12, 25])):
            lines.append(self.random.choice(lines) if lines and draw() < again else self.line())
        if draw() < 0.25:  # phrases that come again
            phrase = " ".join(self.word() for _ in range(self.random.randint(2, 14)))
            lines = [f"{line} {phrase}" if draw() < 0.5 else line for line in lines]
        if draw() < 0.1:
            lines.append("a line of javascript and words." if draw() < 0.5 else "they use cookies like other pages.")
        if draw() < 0.06:
            lines.append(self.random.choice(["this is lorem ipsum dolor.", "a brace { is not closed.", "Lorem Ipsum", "{"]))
        gap = self.random.choice(["\n", "\n", "\n\n", "\n\n\n", " \n"])
        return gap.join(lines) + self.random.choice(["", "\n"])


def pair(random, shared, own):
    """Two texts of words that nobody else has: `shared` shingles of both, `own` of each."""
    def fresh(n):
        return ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(n)]
    begin = fresh(shared + 4)
    return [" ".join(begin + fresh(own)) for _ in range(2)]


class Corpus(unittest.TestCase):
    def ours(self, texts, *flags):
        """(texts that stay, objects that go)"""
        with tempfile.TemporaryDirectory() as folder:
            data, out, removed = (Path(folder) / name for name in ("data.jsonl", "out.jsonl", "removed.jsonl"))
            data.write_text("".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts)))
            done = subprocess.run([ARGS.programs / "ch25_corpus", "--data", data, "--out", out, "--removed", removed, *flags],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            read = [[json.loads(line) for line in path.read_text().split("\n") if line] for path in (out, removed)]
        return read

    def test_verdicts_of_all_rules(self):
        for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
            module.split_into_words = lambda text, *_: text.split()
        c4_filters.split_into_sentences = split_sentences
        filters = {"gopher": gopher_quality_filter.GopherQualityFilter(),
                   "repetition": gopher_repetition_filter.GopherRepetitionFilter(),
                   "c4": c4_filters.C4QualityFilter(),
                   "fineweb": fineweb_quality_filter.FineWebQualityFilter()}
        made = Texts(1)
        texts = [text for text in (made.document() for _ in range(ARGS.count)) if text.strip()]
        texts += [" ".join(["the of"] * 50001), " ".join(["the of", made.word(30)] * 40)]
        for name, theirs in filters.items():
            with self.subTest(filter=name):
                kept, removed = self.ours(texts, "--dedup", "none", "--filter", name)
                mine = {line["id"]: line["removed_by"] for line in removed}
                left = {line["id"]: line["text"] for line in kept}
                met = set()
                for i, text in enumerate(texts):
                    document = Document(text=text, id=str(i))
                    verdict = theirs.filter(document)
                    want = None if verdict is True else f"{name}.{REASONS[name][verdict[1]]}"
                    self.assertEqual(mine.get(i), want, f"{text[:2000]!r}")
                    self.assertEqual(left.get(i), document.text if want is None else None)
                    met.add(want)
                self.assertEqual(met - {None}, {f"{name}.{reason}" for reason in REASONS[name].values()})

    def test_every_mark_that_ends_a_line(self):
        """One line in eight ends with it, so that a text stays only if the mark ends a sentence."""
        fineweb_quality_filter.split_into_words = lambda text, *_: text.split()
        theirs = fineweb_quality_filter.FineWebQualityFilter()
        marks = [chr(c) for c in range(33, 0x110000) if unicodedata.category(chr(c))[0] in "PSLMN" and c % 64 == 0]
        marks = sorted({*marks, *TERMINAL_PUNCTUATION, *(chr(c) for c in range(33, 0x110000) if unicodedata.category(chr(c))[0] in "PS")})
        lines = [f"line {i} has words, so that none of the rules but one can say anything" for i in range(8)]
        texts = ["\n".join(lines) + mark for mark in marks]
        kept, _ = self.ours(texts, "--dedup", "none", "--filter", "fineweb")
        stay = {line["id"] for line in kept}
        for i, text in enumerate(texts):
            self.assertEqual(i in stay, theirs.filter(Document(text=text, id="")) is True, f"U+{ord(marks[i]):04X}")
        self.assertGreaterEqual(len(stay), len(TERMINAL_PUNCTUATION))

    def near(self, texts):
        """The sets of texts that ours takes for near duplicates, each sorted."""
        kept, removed = self.ours(texts, "--dedup", "near")
        groups = {str(line["id"]): [line["text"]] for line in kept}
        for line in removed:
            groups[line["survivor"]["id"]].append(line["text"])
        return sorted(sorted(group) for group in groups.values())

    def test_components_of_datatrove(self):
        """Equal signatures and bands make equal components: most pairs are near the threshold."""
        minhash.load_word_tokenizer = lambda *_: type("Split", (), {"word_tokenize": lambda _, text: text.split()})()
        random = Random(2)
        texts = [text for _ in range(ARGS.count // 2) for text in pair(random, 60, random.randint(5, 20))]
        with tempfile.TemporaryDirectory() as folder:
            theirs = minhash.MinhashDedupSignature(folder)
        first, group = {}, {text: {text} for text in texts}
        for text in texts:
            for band in enumerate(theirs.get_signature(theirs.get_shingles(text))):
                other = first.setdefault(json.dumps(band), text)
                if group[other] is not group[text]:
                    group[other] |= group[text]
                    for one in group[other]:
                        group[one] = group[other]
        want = sorted({tuple(sorted(one)) for one in group.values()})
        self.assertEqual([tuple(one) for one in self.near(texts)], want)
        together = sum(len(one) > 1 for one in want)
        self.assertTrue(0.2 < together / (ARGS.count / 2) < 0.8, together)


if __name__ == "__main__":
    run(Corpus)
