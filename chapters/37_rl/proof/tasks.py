#!/usr/bin/env python3
"""Tasks for chapter 37: chats that teach the form (chapter 36), tasks for GRPO and pairs for DPO.

    tasks.py arithmetic FOLDER          12+34 -> 46
    tasks.py sorting FOLDER             71583 -> 13578
    tasks.py verse FOLDER TEXT          the first words of a line of TEXT -> the next three

writes FOLDER/chats.jsonl, FOLDER/tasks.jsonl and FOLDER/pairs.jsonl. No task of the last tenth, which
is held out, stands among the chats.
"""

import json
import random
import sys
from pathlib import Path


def arithmetic(draw):
    a, b = draw.randrange(10, 100), draw.randrange(10, 100)
    return f"{a}+{b}", str(a + b)


def sorting(draw):
    digits = [draw.choice("0123456789") for _ in range(5)]
    return "".join(digits), "".join(sorted(digits))


def verses(path):
    lines = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [(" ".join(words[:4]), " ".join(words[4:7])) for words in lines if len(words) >= 7]


MADE = {"arithmetic": arithmetic, "sorting": sorting}


def main():
    words = sys.argv[1:]
    if words[:1] not in ([kind] for kind in (*MADE, "verse")) or len(words) != 2 + (words[0] == "verse") or \
            not all(Path(text).is_file() for text in words[2:]):
        print("tasks.py: legal are arithmetic FOLDER, sorting FOLDER, verse FOLDER TEXT", file=sys.stderr)
        return 2
    kind, folder, *text = words
    draw = random.Random(37)
    if kind == "verse":
        found = verses(text[0])
        draw.shuffle(found)
    else:
        found = [MADE[kind](draw) for _ in range(6000)]
    unique = list(dict(found).items())
    train, held_out = unique[:-len(unique) // 10], unique[-len(unique) // 10:]
    tasks = train[:1800] + held_out[:200]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, lines):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    write("chats.jsonl", [{"messages": [{"role": "user", "content": prompt},
                                        {"role": "assistant", "content": answer}]}
                          for prompt, answer in train])
    write("tasks.jsonl", [{"prompt": prompt, "answer": answer} for prompt, answer in tasks])
    others = [answer for _, answer in tasks[1:] + tasks[:1]]
    write("pairs.jsonl", [{"prompt": prompt, "chosen": answer, "rejected": other}
                          for (prompt, answer), other in zip(tasks, others) if answer != other])


if __name__ == "__main__":
    sys.exit(main())
