#!/usr/bin/env python3
"""Questions and answers of the King James Bible, as chats.

    questions.py BIBLE [MOST] > chats.jsonl

BIBLE is what scripts/text.sh writes. Two kinds of questions: who begat whom, and how a verse goes on.
The order is shuffled, by a fixed seed.
"""

import json
import random
import re
import sys
from pathlib import Path

BEGAT = re.compile(r"\b([A-Z][a-z]+) begat ([A-Z][a-z]+)\b")


def chat(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def questions(text):
    found = {}
    for father, child in BEGAT.findall(text):
        found.setdefault(f"Whom did {father} beget?", child)
    for line in text.splitlines():
        words = line.split()
        if 8 <= len(words) <= 14:
            found.setdefault(f"Go on: {' '.join(words[:5])}", " ".join(words[5:]))
    return [chat(question, answer) for question, answer in found.items()]


def main(words):
    if len(words) not in (1, 2) or not Path(words[0]).is_file():
        print("questions.py: legal is a text of scripts/text.sh, and at most how many", file=sys.stderr)
        return 2
    chats = questions(Path(words[0]).read_text(encoding="utf-8"))
    random.Random(1).shuffle(chats)
    for one in chats[: int(words[1]) if len(words) == 2 else None]:
        print(json.dumps(one))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
