#!/usr/bin/env python3
"""Questions and answers of the King James Bible, as chats, and as tasks of chapter 35.

    questions.py BIBLE [MOST] > chats.jsonl    the chats, at most so many
    questions.py --tasks CHATS > tasks.jsonl   go on until the byte FF, exactly as the chat does

BIBLE is what scripts/text.sh writes. Two kinds of questions: who begat whom, and how a verse goes on.
The order is shuffled, by a fixed seed. The last tenth of the chats is what ch36_finetune holds out.
A text of JSON has no byte FF, which ends a message of bytes. So tasks are numbers: --tokens ids.
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


def ids(data):
    return " ".join(map(str, data))


def task(messages):
    *before, answer = ((message["role"] + ":\n").encode() + message["content"].encode() for message in messages)
    head = len("assistant:\n")
    context = b"".join(message + b"\xff" for message in before) + answer[:head]
    return {"context": ids(context), "target": ids(answer[head:]), "until": [" 255"],
            "max_tokens": len(answer) - head + 1}


def main(words):
    tasks = words[:1] == ["--tasks"]
    file, *most = words[tasks:] or [""]
    if len(most) > (not tasks) or not all(word.isdigit() for word in most) or not Path(file).is_file():
        print("questions.py: legal are a text and at most how many, or --tasks and chats", file=sys.stderr)
        return 2
    text = Path(file).read_text(encoding="utf-8")
    if tasks:
        lines = [task(json.loads(line)["messages"]) for line in text.splitlines()]
    else:
        found = questions(text)
        random.Random(1).shuffle(found)
        lines = [{"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
                 for question, answer in found[: int(most[0]) if most else None]]
    print(*map(json.dumps, lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
