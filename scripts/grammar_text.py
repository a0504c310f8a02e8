#!/usr/bin/env python3
"""Writes 500,000 bytes of small stories from a grammar: a text to train on without a package or a
network. The same bytes on every machine.

    scripts/grammar_text.py OUT

A story has a hero, a place and a thing, which come back in its sentences.
"""

import sys
from pathlib import Path

BYTES = 500_000

WORDS = {
    "hero": ["the miller", "the queen", "a young fisher", "the old clockmaker", "the tailor", "a shepherd",
             "the captain", "a wandering singer", "the baker", "the smith"],
    "friend": ["a grey cat", "her brother", "a talking crow", "the ferryman", "a blind dog", "his aunt",
               "the neighbour", "a travelling doctor"],
    "place": ["the river", "the mill", "the harbour", "the dark wood", "the tower", "the market", "the bridge",
              "the quarry", "the garden"],
    "thing": ["a silver key", "a wooden box", "an old map", "a red lantern", "a letter", "a broken clock",
              "a sack of seed", "a brass bell", "a golden thread"],
    "went": ["walked to", "ran to", "rode to", "came back to", "looked for", "stood before", "slept beside"],
    "found": ["found", "lost", "carried", "hid", "mended", "sold", "buried", "remembered"],
    "when": ["In the morning", "At noon", "Before dark", "The next day", "In the third winter", "That night",
             "After the rain", "When the bells rang"],
    "said": ["said", "asked", "answered", "whispered", "cried"],
    "speech": ["Who goes there?", "Come with me.", "The water is rising.", "I have waited a long time.",
               "Nobody knows the way.", "Give it back.", "You will see it again.", "Keep it closed."],
    "end": ["And so it was.", "Nobody ever saw it again.", "They laughed until morning.",
            "The door stayed open all night.", "It snowed for seven days."],
    "number": ["two", "three", "four", "five", "seven", "nine"],
    "unit": ["days", "years", "hours", "weeks"],
}

# A name in braces is a word of that list. hero, place and thing are drawn once for a story.
SENTENCES = [
    "{when} {hero} {went} {place}.",
    "There {hero} {found} {thing}.",
    "{when} {hero} met {friend} at {place}.",
    '"{speech}" {said} {friend}.',
    '"{speech}" {said} {hero}, and {found} {thing}.',
    "For {number} {unit} nobody {went} {place}.",
    "{friend} had {found} {thing} {number} {unit} before.",
    "So {hero} and {friend} {went} {place}, and it took {number} {unit}.",
]


class Random:
    """A linear congruential generator (Knuth's MMIX): Python's own may change between versions."""

    def __init__(self, seed):
        self.state = seed

    def choose(self, choices):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return choices[(self.state >> 33) % len(choices)]


def story(random):
    fixed = {name: random.choose(WORDS[name]) for name in ("hero", "place", "thing")}
    sentences = []
    for _ in range(random.choose([4, 5, 6, 7])):
        drawn = {name: fixed.get(name) or random.choose(words) for name, words in WORDS.items()}
        sentence = random.choose(SENTENCES).format(**drawn)
        first = 1 if sentence[0] == '"' else 0
        sentences.append(sentence[:first] + sentence[first].upper() + sentence[first + 1:])
    return " ".join([*sentences, random.choose(WORDS["end"])]) + "\n"


def text():
    random, stories, size = Random(1), [], 0
    while size < BYTES:
        stories.append(story(random))
        size += len(stories[-1])
    return "".join(stories)[:BYTES - 1] + "\n"


def main(words):
    if len(words) != 1:
        print("grammar_text.py: usage: scripts/grammar_text.py OUT", file=sys.stderr)
        return 2
    try:
        Path(words[0]).write_text(text(), encoding="ascii")
    except OSError as error:
        print(f"grammar_text.py: cannot write {words[0]}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
