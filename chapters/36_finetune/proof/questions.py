#!/usr/bin/env python3
"""Questions and answers of the King James Bible, as chats.

    questions.py BIBLE [MOST] > chats.jsonl    the chats, at most so many
    questions.py --ask CHATS                   their questions, as ch36_finetune --chat reads them
    questions.py --score CHATS < ANSWERS       how many of its answers are those of the chats, exactly

BIBLE is what scripts/text.sh writes. Two kinds of questions: who begat whom, and how a verse goes on.
The order is shuffled, by a fixed seed. The last tenth of the chats is what ch36_finetune holds out.
"""

import json
import random
import re
import sys
from pathlib import Path

BEGAT = re.compile(r"\b([A-Z][a-z]+) begat ([A-Z][a-z]+)\b")


def questions(text):
    found = {}
    for father, child in BEGAT.findall(text):
        found.setdefault(f"Whom did {father} beget?", child)
    for line in text.splitlines():
        words = line.split()
        if 8 <= len(words) <= 14:
            found.setdefault(f"Go on: {' '.join(words[:5])}", " ".join(words[5:]))
    return list(found.items())


def main(words):
    flag = words.pop(0) if words[:1] in (["--ask"], ["--score"]) else ""
    if not 1 <= len(words) <= (1 if flag else 2) or not Path(words[0]).is_file():
        print("questions.py: legal are a text and at most how many, or --ask or --score and chats", file=sys.stderr)
        return 2
    file, *most = words
    text = Path(file).read_text(encoding="utf-8")
    if not flag:
        chats = questions(text)
        random.Random(1).shuffle(chats)
        for question, answer in chats[: int(most[0]) if most else None]:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            print(json.dumps({"messages": messages}))
        return 0
    chats = [[message["content"] for message in json.loads(line)["messages"]] for line in text.splitlines()]
    if flag == "--ask":
        print(*(question for question, _ in chats), sep="\n\n")
        return 0
    answers = sys.stdin.buffer.read().decode(errors="replace").split("\n")
    right = [answer == wanted for answer, (_, wanted) in zip(answers, chats)]
    learned = len(chats) - max(1, len(chats) // 10)
    print(f"{sum(right[:learned])} of {learned} learned, {sum(right[learned:])} of {len(chats) - learned} held out")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
