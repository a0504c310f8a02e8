#!/usr/bin/env python3
"""The picture of same_bits.md that one can execute: the tokens of a sequence, cut for ranks.

    docs/same_bits.py             256 tokens on 2 ranks
    docs/same_bits.py 512 4       512 tokens on 4 ranks

It prints which chunk belongs to which leaf and rank. Then it sums numbers of very different sizes in
FP32: on one rank, on all ranks by the rule, and in two ways that people take. It ends with status 1 if
the rule gives other bits than one rank, or if a wrong way gives the same.
"""

import random
import struct
import sys


def fp32(x):
    """x, rounded to FP32. A sum of two FP32 numbers is exact enough in Python's FP64 to be rounded once more."""
    return struct.unpack("f", struct.pack("f", x))[0]


def chain(terms):
    """One after the other."""
    total = terms[0]
    for x in terms[1:]:
        total = fp32(total + x)
    return total


def tree(terms):
    """Neighbors first, then pairs of them; a power of two of terms."""
    while len(terms) > 1:
        terms = [fp32(terms[i] + terms[i + 1]) for i in range(0, len(terms), 2)]
    return terms[0]


def leaves_of(T):
    """A power of two, at most 8, that leaves at least 64 tokens a leaf."""
    n = 1
    while 2 * n <= 8 and T // (2 * n) >= 64:
        n *= 2
    return n


def leaf_sums(x, n):
    """T tokens are cut into 2n chunks. Leaf i is chunk i and the i-th chunk from the end, in this order."""
    size = len(x) // (2 * n)
    chunks = [x[i * size:(i + 1) * size] for i in range(2 * n)]
    return [chain(chunks[i] + chunks[2 * n - 1 - i]) for i in range(n)]


def main(words):
    if len(words) not in (0, 2) or not all(word.isdigit() for word in words):
        print(f"same_bits.py: {' '.join(words)}: legal are nothing, or tokens and ranks", file=sys.stderr)
        return 2
    T, ranks = map(int, words) if words else (256, 2)
    n = leaves_of(T)
    if ranks not in (2, 4, 8) or ranks > n or T % 128:
        print(f"same_bits.py: {T} tokens on {ranks} ranks: legal are multiples of 128, and 2, 4 or 8 ranks that are "
              f"no more than the leaves, here {n}", file=sys.stderr)
        return 2
    owner = [min(i, 2 * n - 1 - i) * ranks // n for i in range(2 * n)]
    print("chunk " + " ".join(f"{i:3}" for i in range(2 * n)))
    print("leaf  " + " ".join(f"{min(i, 2 * n - 1 - i):3}" for i in range(2 * n)))
    print("rank  " + " ".join(f"{rank:3}" for rank in owner))

    draw = random.Random(1)
    x = [fp32(draw.gauss(0, 1) * 10 ** draw.uniform(-4, 4)) for _ in range(T)]
    sums, per = leaf_sums(x, n), n // ranks
    one = tree(sums)
    rule = tree([tree(sums[rank * per:(rank + 1) * per]) for rank in range(ranks)])  # an all-reduce by rank
    run = T // ranks
    wrong = {"one after the other": chain(x),
             "each rank its tokens": chain([chain(x[rank * run:(rank + 1) * run]) for rank in range(ranks)])}
    print(f"\none rank, the rule    {one!r}\n{ranks} ranks, the rule     {rule!r}")
    for name, total in wrong.items():
        print(f"{name:21} {total!r}")
    return 0 if rule == one and one not in wrong.values() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
