#!/usr/bin/env python3
"""Tasks that need no network: files of questions, the same bytes for the same seed.

    chapters/35_evaluate/proof/tasks.py OUT --text runs/bible.txt [--count 200] [--seed 1]

Writes into the folder OUT, and prints what chance gets on each:

    verse.jsonl       a sentence of the text, and four of which one follows it
    copy.jsonl        a word, said again; the wrong ones have two letters exchanged
    sort.jsonl        five digits, sorted; the wrong ones are other orders
    arithmetic.jsonl  a sum below 100, and three wrong ones near it
    brackets.jsonl    brackets that are open, and which one closes the last
    text.jsonl        sentences of the text, for bits per byte
    sums.jsonl        the sums again, as texts up to a stop
    train.txt         the text, and other questions with their answers, to train on
"""

import argparse
import json
import random
import re
from pathlib import Path

CLOSE = {"(": ")", "[": "]", "{": "}", "<": ">"}


def ranked(draw, context, right, wrong):
    """A line with the right choice at a random place."""
    choices = [right, *wrong]
    draw.shuffle(choices)
    return {"context": context, "choices": choices, "gold": choices.index(right)}


def others(draw, right, make):
    """Three that are wrong, and not alike."""
    wrong = []
    while len(wrong) < 3:
        one = make(draw)
        if one != right and one not in wrong:
            wrong.append(one)
    return wrong


def verse(draw, lines):
    at = draw.randrange(len(lines) - 1)
    return ranked(draw, lines[at], lines[at + 1], others(draw, lines[at + 1], lambda d: d.choice(lines)))


def copy(draw, _):
    word = "".join(draw.sample("abcdefghijklmnopqrstuvwxyz", 6))

    def exchanged(d):
        letters, (i, j) = list(word), d.sample(range(6), 2)
        letters[i], letters[j] = letters[j], letters[i]
        return "".join(letters)

    return ranked(draw, f"Say {word} again:", word, others(draw, word, exchanged))


def sort(draw, _):
    digits = draw.sample("0123456789", 5)
    right = " ".join(sorted(digits))
    return ranked(draw, f"Sort {' '.join(digits)}:", right,
                  others(draw, right, lambda d: " ".join(d.sample(digits, 5))))


def arithmetic(draw, _):
    a, b = draw.randrange(50), draw.randrange(50)
    return ranked(draw, f"{a} + {b} =", str(a + b), others(draw, str(a + b), lambda d: str(abs(a + b + d.randint(-5, 5)))))


def brackets(draw, _):
    text, still_open = "", []
    while len(text) < 9 or not still_open:
        if still_open and draw.random() < 0.4:
            text += CLOSE[still_open.pop()]
        else:
            still_open.append(draw.choice("([{<"))
            text += still_open[-1]
    right = CLOSE[still_open[-1]]
    return ranked(draw, f"Close {text}:", right, [c for c in CLOSE.values() if c != right])


KINDS = {"verse": verse, "copy": copy, "sort": sort, "arithmetic": arithmetic, "brackets": brackets}


def questions(kind, lines, count, seed):
    draw = random.Random(f"{kind} {seed}")
    return [KINDS[kind](draw, lines) for _ in range(count)]


def write(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def training_text(lines, count, seed):
    """Other questions than those of the files: their seed is another. Verses come in their order."""
    asked = [one for kind in KINDS if kind != "verse" for one in questions(kind, lines, count, f"{seed} to train on")]
    random.Random(seed).shuffle(asked)
    spoken = [f"{one['context']} {one['choices'][one['gold']]}" for one in asked]
    each = -(-len(spoken) // len(lines))
    mixed = []
    for i, line in enumerate(lines):
        mixed += [line, *spoken[each * i : each * (i + 1)]]
    return "\n".join(mixed) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", type=argparse.FileType(encoding="utf-8"), required=True)
    parser.add_argument("--count", type=int, default=200, help="questions of a kind")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = re.split(r"\n+|(?<=[.!?]) +", args.text.read())
    lines = [line.strip() for line in lines if 20 <= len(line) <= 200]
    held_out = lines[-len(lines) // 10 :]
    if len(set(held_out)) < 8:
        parser.error(f"{args.text.name}: too short; legal are 80 sentences and more, of 20 to 200 characters")
    for kind in KINDS:
        asked = questions(kind, held_out, args.count, args.seed)
        write(args.out / f"{kind}.jsonl", asked)
        print(f"{kind}: {len(asked)} questions, chance {1 / len(asked[0]['choices']):.2f}")
    draw = random.Random(args.seed)
    write(args.out / "text.jsonl", [{"text": draw.choice(held_out)} for _ in range(args.count)])
    sums = questions("arithmetic", held_out, args.count, args.seed)
    write(args.out / "sums.jsonl", [{"context": one["context"], "target": f" {one['choices'][one['gold']]}",
                                     "until": ["\n"], "max_tokens": 8} for one in sums])
    (args.out / "train.txt").write_text(training_text(lines[: -len(held_out)], 20 * args.count, args.seed), encoding="utf-8")


if __name__ == "__main__":
    main()
