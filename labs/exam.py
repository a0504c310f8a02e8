#!/usr/bin/env python3
"""An exam of twelve questions with numbers, drawn by a seed. Answers are computed and kept nowhere.

  labs/exam.py PATH --seed N              the questions; PATH: trunk, systems, or llama
  labs/exam.py PATH --seed N --answer K VALUE
                                          whether VALUE is the answer to question K, to three digits
  labs/exam.py PATH --seed N --key WORD   an exam that only those can draw who know the word
  labs/exam.py PATH --seed N --key WORD --answers
                                          its answers, and where each formula stands
  labs/exam.py PATH --seed N --key WORD --class NAMES --sheets DIR
                                          a sheet NAME.txt of its own for each line of the file NAMES
  labs/exam.py PATH --seed N --key WORD --class NAMES --handed-in DIR --csv FILE
                                          grades NAME.txt of each: lines "K VALUE"
"""

import argparse
import csv
import math
import random
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from engine.answers import number, rounded  # noqa: E402
from engine.labs import Refused  # noqa: E402

DIGITS = 3
SHOWN = 4  # digits: who compares by eye sees whether a third one was rounded up

# ---- formulas of chapters that exercises and examples check, or several questions want -------------


def block_flops(L, C):  # 01: products with the blocks' weights, a token, forward and backward
    return 72 * L * C * C


def second_step(first, second, beta1, beta2):  # 02: Adam's, in learning rates
    m = beta1 * (1 - beta1) * first + (1 - beta1) * second
    v = beta2 * (1 - beta2) * first**2 + (1 - beta2) * second**2
    return m / (1 - beta1**2) / math.sqrt(v / (1 - beta2**2))


def cosine_rate(s, W, S, low):  # 03: the share of the peak, at step s of S
    return low + (1 - low) * (1 + math.cos(math.pi * (s - W) / (S - W))) / 2


def clip_factor(norms, limit):  # 04
    return min(1, limit / math.hypot(*norms))


def all_reduced(P, N):  # 07: bytes that a rank sends, FP32
    return 2 * 4 * P * (N - 1) / N


def zero1_kept(P, N):  # 08: BF16 with FP32 master weights
    return (6 + 12 / N) * P


def room(Vp, T, C):  # 09: elements of the largest section of GPT-2's model
    return max((Vp + T) * C, 12 * C * C + 13 * C)


def reshard_ratio(GA):  # 10: sent with resharding, to sent without
    return 3 * GA / (GA + 1)


def fewest_micros(p, share):  # 12: GPipe idles less than this
    return next(m for m in range(1, 10000) if (p - 1) / (m + p - 1) < share)


def head_in_blocks(C, V):  # 12, 13
    return 2 * C * V / (24 * C * C)


def owner_rows(E, k, ep):  # 22: rows of a token that leave, in the mean
    return (ep - 1) * (1 - math.comb(E - E // ep, k) / math.comb(E, k))


def block_inputs(L, T, C):  # 06
    return 4 * L * T * C


def keys_and_values(L, T, groups, HS):  # 19: BF16
    return 2 * 2 * L * T * groups * HS


def same_matrices(C, kappa):  # 19: F of SwiGLU and grouped heads
    return (12 * C * C - 2 * C * C - 2 * C * C * kappa) / (3 * C)


# ---- questions: (chapter, text, answer), where {names} are drawn -----------------------------------

POWERS = tuple(2**i for i in range(2, 12))
MILLIONS = (60, 124, 220, 350, 480, 760, 1100, 1300, 1800, 2700, 6700, 13000)

TRUNK = [
    ("01", "GPT-2's model has {L} blocks and {C} channels. How many floating-point operations do the products with the weights of the blocks take for a token, forward and backward?", lambda L, C, **_: block_flops(L, C)),
    ("02", "The gradient of a weight is 4 in the first step and {g} in the second. By how many learning rates does Adam move the weight in the second step, with betas 0.9 and 0.95? Leave out epsilon.", lambda g, **_: second_step(4, g, 0.9, 0.95)),
    ("03", "--schedule cosine with {W} steps of warmup, {S} steps in all, and --min-lr 0.1: which share of its peak has the rate at step {s}? Steps count from 0.", lambda s, W, S, **_: cosine_rate(s, W, S, 0.1)),
    ("04", "A model has two tensors, whose gradients have the norms {x} and {y}. By what is the gradient multiplied with --clip {c}?", lambda x, y, c, **_: clip_factor((x, y), c)),
    ("05", "{P} million parameters in BF16 with FP32 master weights, gradients and AdamW's states: how many bytes?", lambda P, **_: 18 * P * 1e6),
    ("06", "--recompute full, {L} blocks, a sequence of {T} tokens with {C} channels, in FP32: how many bytes are the inputs of the blocks?", lambda L, T, C, **_: block_inputs(L, T, C)),
    ("07", "{P} million FP32 gradients are all-reduced over {N} ranks. How many bytes does a rank send?", lambda P, N, **_: all_reduced(P * 1e6, N)),
    ("08", "{P} million parameters in BF16, master weights in FP32, AdamW, ZeRO-1, {N} ranks. How many bytes of weights, gradients and states has a rank?", lambda P, N, **_: zero1_kept(P * 1e6, N)),
    ("10", "ZeRO-3 in FP32 with {GA} micro-steps: how many times as much does a rank send with resharding as without?", lambda GA, **_: reshard_ratio(GA)),
    ("11", "{t} tensor ranks, {L} blocks, one sequence of {T} tokens, {C} channels, BF16: how many bytes does a rank send for the blocks, forward and backward, without recomputation?", lambda L, T, C, t, **_: 4 * L * 2 * (t - 1) / t * T * C * 2),
    ("12", "GPipe on {p} stages: how many micro-batches does it need at least to idle less than {percent} percent?", lambda p, percent, **_: fewest_micros(p, percent / 100)),
    ("13", "{P} million parameters in BF16, master weights in FP32, AdamW, ZeRO-1, on {t} tensor ranks, {N} shares of the batch and {p} stages, all of which have equally much. How many bytes of weights, gradients and states has a rank?", lambda P, t, N, p, **_: zero1_kept(P * 1e6 / (t * p), N)),
]

SYSTEMS = [
    ("07", "{P} million FP32 gradients are all-reduced over {N} ranks. How many bytes does a rank send?", lambda P, N, **_: all_reduced(P * 1e6, N)),
    ("07", "A small all-reduce takes as long as its messages that follow one another. On {many} ranks, how many times as long does ring take as halving?", lambda many, **_: 2 * (many - 1) / (2 * math.log2(many))),
    ("08", "{P} million parameters in BF16, master weights in FP32, AdamW, ZeRO-1, {N} ranks. How many bytes of weights, gradients and states has a rank?", lambda P, N, **_: zero1_kept(P * 1e6, N)),
    ("09", "ZeRO-2 of {P} million parameters in BF16 on {N} ranks with {GA} micro-steps: how many bytes does a rank send in a step?", lambda P, N, GA, **_: (N - 1) / N * (4 * GA + 2) * (P * 1e6)),
    ("09", "GPT-2's model with {C} channels, {V} rows of the embedding and {T} positions: how many bytes do the two section buffers of ZeRO-2 take? Leave out padding.", lambda C, V, T, **_: 2 * 4 * room(V, T, C)),
    ("10", "ZeRO-3 in FP32 with {GA} micro-steps: how many times as much does a rank send with resharding as without?", lambda GA, **_: reshard_ratio(GA)),
    ("30", "{P} million parameters in {N} shards, with 4 replicas of each: how many bytes does a rank send to its replicas in a step?", lambda P, N, **_: 2 * 4 * (P * 1e6 / N) * (4 - 1) / 4),
    ("11", "{t} tensor ranks, {L} blocks, one sequence of {T} tokens, {C} channels, BF16: how many bytes does a rank send for the blocks, forward and backward, without recomputation?", lambda L, T, C, t, **_: 4 * L * 2 * (t - 1) / t * T * C * 2),
    ("12", "GPipe on {p} stages: how many micro-batches does it need at least to idle less than {percent} percent?", lambda p, percent, **_: fewest_micros(p, percent / 100)),
    ("13", "How many blocks multiply as much as a head of {V} rows, at {C} channels?", lambda C, V, **_: head_in_blocks(C, V)),
    ("20", "{cp} ranks split a sequence of {T} tokens by ring, {C} channels, {groups} of {heads} heads of keys, BF16. How many bytes does a rank send in forward of a layer?", lambda T, C, groups, heads, cp, **_: 2 * (groups / heads) * T * C * (cp - 1) / cp * 2),
    ("22", "{E} experts, {k} a token, on {ep} ranks; all sets of experts are equally likely. How many rows of a token leave its rank in the mean, one for each owner?", lambda E, k, ep, **_: owner_rows(E, k, ep)),
]

LLAMA = [
    ("05", "{P} million parameters in BF16 with FP32 master weights, gradients and AdamW's states: how many bytes?", lambda P, **_: 18 * P * 1e6),
    ("06", "How many bytes are the inputs of {L} blocks, of a sequence of {T} tokens with {C} channels, in FP32?", lambda L, T, C, **_: block_inputs(L, T, C)),
    ("12", "How many blocks of GPT-2 multiply as much as a head of {V} rows, at {C} channels?", lambda C, V, **_: head_in_blocks(C, V)),
    ("19", "{L} blocks, {groups} heads of keys of {HS} channels: how many bytes are the keys and values of {T} tokens in BF16?", lambda L, T, groups, HS, **_: keys_and_values(L, T, groups, HS)),
    ("19", "{groups} of {heads} heads have keys and values, C = {C}: with which F has a block of SwiGLU the matrices of GPT-2's block?", lambda C, groups, heads, **_: same_matrices(C, groups / heads)),
    ("19", "By how many radians does RoPE turn pair {i} of a head of {HS} channels at token {T}, with theta 10,000?", lambda T, i, HS, **_: T * 10000 ** (-2 * i / HS)),
    ("21", "How many weights have {E} experts of {F} hidden channels and their router, at {C} channels?", lambda E, C, F, **_: E * (3 * C * F + C)),
    ("21", "How many operations does a token take there, forward and backward, with {k} of {E} experts, F = {F}, C = {C}?", lambda E, k, C, F, **_: k * 18 * C * F + 6 * C * E),
    ("21", "--capacity {f}, {E} experts, {k} a token, sequences of {T} tokens: how many tokens of a sequence does an expert take at most?", lambda f, k, T, E, **_: math.ceil(f * k * T / E)),
    ("21", "10 tokens of a sequence take one of two experts each: {load} the first. Its mean score is {share}, that of the other the rest to 1. What is the balance loss, before its factor?", lambda load, share, **_: 2 * load / 10 * share + 2 * (10 - load) / 10 * (1 - share)),
    ("21", "A token takes two experts, of scores {share} and {second}. What is the weight of the first, renormalized?", lambda share, second, **_: share / (share + second)),
    ("22", "{E} experts, {k} a token, on {ep} ranks; all sets of experts are equally likely. How many rows of a token leave its rank in the mean, one for each owner?", lambda E, k, ep, **_: owner_rows(E, k, ep)),
]

PATHS = {"trunk": TRUNK, "systems": SYSTEMS, "llama": LLAMA}


def drawn(random_number):
    """Numbers for one question."""
    pick = random_number.choice
    return {
        "P": pick(MILLIONS), "N": pick((4, 8, 16, 32, 64)), "many": pick(POWERS), "GA": pick((2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)), "C": pick((768, 1024, 1600, 2048)),
        "V": pick((32000, 50257, 128256)), "T": pick((1024, 2048, 4096, 8192)), "L": pick((12, 24, 36, 48)), "t": pick((2, 4, 8)), "p": pick((4, 6, 8, 12, 16)),
        "percent": pick((5, 10, 15, 20)), "groups": pick((2, 4, 8)), "heads": pick((16, 32)), "cp": pick((2, 4, 8)), "E": pick((16, 32, 64)), "k": pick((2, 3, 4, 6)),
        "ep": pick((2, 4, 8)), "HS": pick((64, 128)), "i": pick((1, 3, 8, 16)), "F": pick((512, 1408, 2048)), "f": pick((1, 1.25, 1.5, 2)),
        "load": pick((6, 7, 8, 9)), "share": pick((0.5, 0.55, 0.6, 0.7)), "second": pick((0.1, 0.15, 0.2)),
        "g": pick((1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 16, 20)), "W": pick((10, 20, 50)), "S": pick((100, 200, 400)), "s": pick((60, 70, 80, 90)),
        "x": pick((1, 2, 3, 4)), "y": pick((5, 6, 7, 8)), "c": pick((0.5, 1, 2)),
    }  # fmt: skip


def exam(path, seed, key=None):
    """[(chapter, question, answer)]"""
    if path not in PATHS:
        raise Refused(f"no exam {path}; there are {', '.join(PATHS)}")
    numbers = random.Random(f"{path} {seed}" if key is None else f"{path} {seed} {key}")
    questions = []
    for chapter, text, answer in PATHS[path]:
        values = drawn(numbers)
        questions.append((chapter, text.format(**values), answer(**values)))
    return questions


# ---- a class: each student has questions of their own ----------------------------------------------


def names(path):
    """The students of a class, a line each."""
    found = [line.strip() for line in lines_of(path) if line.strip()]
    for name in found:
        if "/" in name or name.startswith(".") or found.count(name) > 1:
            raise Refused(f"{path}: {name}; legal are names of files, each once")
    return found


def lines_of(path):
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as fault:
        raise Refused(f"{path} cannot be read: {getattr(fault, 'strerror', None) or 'it is not UTF-8'}") from None


def write_sheets(path, seed, key, students, folder):
    """A file of questions for each student; none is replaced."""
    sheets = {folder / f"{name}.txt": exam(path, seed, f"{key} {name}") for name in students}
    there = [sheet for sheet in sheets if sheet.exists()]
    if there:
        raise Refused(f"{there[0]} is there and stays as it is; legal is a folder without sheets")
    folder.mkdir(parents=True, exist_ok=True)
    for sheet, questions in sheets.items():
        lines = [f"{sheet.stem}: answers go into {sheet.name}, a line each: number, blank, value to {DIGITS} digits", ""]
        sheet.write_text("\n".join([*lines, *(f"{k:2}  {text}" for k, (_, text, _) in enumerate(questions, 1))]) + "\n", encoding="utf-8")
    print(f"{len(sheets)} sheets in {folder}")


def points_of(questions, lines):
    """(1 or 0 for each question, lines that are no answer). Of two answers to a question the last counts."""
    points, unread = [0] * len(questions), []
    for line in filter(str.strip, lines):
        k, _, value = line.strip().partition(" ")
        try:
            if k not in map(str, range(1, len(questions) + 1)):
                raise InvalidOperation
            points[int(k) - 1] = int(is_right(value, questions[int(k) - 1][2]))
        except ArithmeticError:
            unread.append(line)
    return points, unread


def grade_sheets(path, seed, key, students, folder, out):
    """Writes a row for each student. Returns the status: 1 if something is missing or could not be read."""
    if not folder.is_dir():
        raise Refused(f"no folder {folder} with answers")
    rows, status = [], 0
    for name in students:
        questions, answers = exam(path, seed, f"{key} {name}"), folder / f"{name}.txt"
        points, unread = points_of(questions, lines_of(answers) if answers.exists() else [])
        for said in [f"not read: {line}" for line in unread] if answers.exists() else ["nothing handed in"]:
            print(f"{name}: {said}")
        status |= bool(unread) or not answers.exists()
        rows.append([name, sum(points), *points])
    try:
        with out.open("x", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["student", "points", *range(1, len(PATHS[path]) + 1)], *rows])
    except OSError as fault:
        raise Refused(f"{out} cannot be written: {fault.strerror}; legal is a new file") from None
    return int(status)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"{message}; labs/exam.py --help")


def main(words):
    parser = Parser(prog="exam.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--key")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--answer", nargs=2, metavar=("K", "VALUE"))
    for flag, more in {"--class": {"dest": "students"}, "--sheets": {}, "--handed-in": {}, "--csv": {}}.items():
        parser.add_argument(flag, type=Path, **more)
    try:
        args = parser.parse_args(words)
        if args.answers and not args.key:
            raise Refused("--answers wants the --key WORD with which the questions were drawn; --answer K VALUE judges one without")
        questions = exam(args.path, args.seed, args.key)
        if args.students or args.sheets or args.handed_in or args.csv:
            return of_a_class(args)
        if args.answer:
            return judge(questions, *args.answer)
    except Refused as refused:
        print(f"exam.py: {refused}", file=sys.stderr)
        return 2
    for k, (chapter, text, answer) in enumerate(questions, 1):
        print(f"{k:2}  {answer:.{SHOWN}g}  chapter {chapter}" if args.answers else f"{k:2}  {text}")
    return 0


def of_a_class(args):
    if not args.key or not args.students or not (args.sheets or args.handed_in and args.csv):
        raise Refused("a class wants --key WORD, --class NAMES, and --sheets DIR or --handed-in DIR --csv FILE")
    what = (args.path, args.seed, args.key, names(args.students))
    return write_sheets(*what, args.sheets) or 0 if args.sheets else grade_sheets(*what, args.handed_in, args.csv)


def is_right(value, answer):
    """Whether `value` has DIGITS right digits: rounded to them it is the answer, or it is nearer to the
    answer than rounding would take it. @throws InvalidOperation if it is no number"""
    unit = 10.0 ** (math.floor(math.log10(answer)) - DIGITS + 1)
    same = rounded(value, DIGITS) == rounded(repr(float(answer)), DIGITS)
    return same or abs(number(value) - Decimal(answer)) <= Decimal(unit / 2)


def judge(questions, k, value):
    """Prints whether `value` is right to DIGITS digits. Returns the status."""
    if k not in map(str, range(1, len(questions) + 1)):
        raise Refused(f"no question {k}; there are 1 to {len(questions)}")
    try:
        right = is_right(value, questions[int(k) - 1][2])
    except ArithmeticError:
        raise Refused(f"{value} is no number") from None
    print(f"{k}: right" if right else f"{k}: not {value}, to {DIGITS} digits")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
