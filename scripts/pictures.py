#!/usr/bin/env python3
"""Draws the pictures of the chapters that show a mechanism with small numbers.

    scripts/pictures.py            draws all from scripts/pictures.json
    scripts/pictures.py --check    fails if a picture is another

Colors are readable on white and on black, and there is no background.
"""

import json
import math
import sys

from marked import ROOT, settle, tell

DATA = ROOT / "scripts/pictures.json"

GREY = "#808890"  # text and lines: readable on white and on black
BLUE, ORANGE, GREEN, RED, DARK = "#2f6f9f", "#c2701e", "#3f8f4f", "#b5443c", "#4a5560"
# Of how many ranks a sum is, 1 to 4.
SUMS = {1: "#4a5560", 2: "#2f6f9f", 3: "#7a5195", 4: "#3f8f4f"}


class Svg:
    """Text and boxes, one below the other."""

    def __init__(self, width, height, title):
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                    'font-family="system-ui, sans-serif" font-size="13">', f"<title>{title}</title>"]

    def text(self, x, y, words, color=GREY, size=13, anchor="start", bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.out.append(f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}" '
                        f'text-anchor="{anchor}"{weight}>{words}</text>')

    def box(self, x, y, width, height, fill="none", stroke="none", more=""):
        self.out.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" '
                        f'fill="{fill}" stroke="{stroke}"{more}/>')

    def cell(self, x, y, width, height, number, fill, mark=False):
        self.box(x + 1, y + 1, width - 2, height - 2, fill or "none", GREY if not fill else "none",
                 "" if fill else ' stroke-dasharray="2 3" stroke-opacity="0.6"')
        if mark:
            self.box(x, y, width, height, stroke="#e0a100", more=' stroke-width="2.5"')
        if number is not None:
            said = number if isinstance(number, str) else f"{number:g}"
            self.text(x + width / 2, y + height / 2 + 4, said, "#ffffff", 12, "middle")

    def arrow(self, x1, y1, x2, y2, color=GREY):
        self.out.append(f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{color}" fill="none" '
                        'stroke-width="1.5" marker-end="url(#tip)"/>')

    def tip(self, color=GREY):
        self.out.append('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{color}"/>'
                        "</marker></defs>")

    def done(self):
        return "\n".join([*self.out, "</svg>\n"])


# ---- 07: four ranks, eight numbers ---------------------------------------------------------------

def sent(step, rank):
    """ "3-4 to rank 1" """
    first, last = step["begin"], step["begin"] + step["count"] - 1
    return f"{first}-{last} to {step['to']}" if last > first else f"{first} to {step['to']}"


def all_reduce(ranks, title, halves):
    """A row for each state, a column for each rank. `halves`: what the steps of each half do."""
    wide, cell, row = 232, 26, 56
    steps = len(ranks[0])
    svg = Svg(110 + 4 * wide, 46 + row * steps + 12, title)
    for rank in range(4):
        svg.text(110 + rank * wide + 4 * cell, 16, f"rank {rank}", anchor="middle", bold=True)
        for j in range(8):
            svg.text(110 + rank * wide + (j + 0.5) * cell, 34, str(j), size=10, anchor="middle")
    for i in range(steps):
        y = 42 + i * row
        svg.text(0, y + 17, "at first" if i == 0 else f"after step {i}", bold=i in (0, steps - 1))
        if i + 1 < steps:
            svg.text(0, y + 43, halves[2 * i >= steps - 1], ORANGE, 12)
        for rank, states in enumerate(ranks):
            x, state = 110 + rank * wide, states[i]["state"]
            going = range(0)
            if i + 1 < steps:
                going = range(states[i]["begin"], states[i]["begin"] + states[i]["count"])
                svg.text(x + 4 * cell, y + 43, f"sends {sent(states[i], rank)}", ORANGE, 12, "middle")
            for j, number in enumerate(state):
                of = f"{number:g}".count("1")
                svg.cell(x + j * cell, y, cell, 26, None, SUMS[of], mark=j in going)
                svg.text(x + j * cell + cell / 2, y + 17, f"{number:g}", "#ffffff", 9.5, "middle")
    return svg.done()


def ring(data):
    return all_reduce(data["ring"], "An all-reduce by a ring of four ranks",
                      ("reduce-scatter", "all-gather"))


def halving(data):
    return all_reduce(data["halving"], "An all-reduce by halving and doubling, on four ranks",
                      ("halving", "doubling"))


# ---- 08, 09, 10: one parameter followed ----------------------------------------------------------

FOLLOWED = 5  # the parameter that is followed


class Followed:
    """Rows of two ranks, whose buffers are eight cells each; a cell may be absent: (number, color) or
    None."""

    CELL, LEFT, WIDE = 34, 240, 370
    NOTHING = [[None] * 8] * 2

    def __init__(self, data, stage, labels, rows):
        self.ranks, self.labels = data["sharded_update"], labels
        self.step = 34 + 32 * len(labels)
        self.svg = Svg(self.LEFT + 2 * self.WIDE, 40 + self.step * rows,
                       f"ZeRO-{stage}: one parameter through a step on two ranks")
        self.y = 36
        for rank in range(2):
            self.svg.text(self.LEFT + rank * self.WIDE + 4 * self.CELL, 18, f"rank {rank}",
                          anchor="middle", bold=True)

    def whole(self, key, color):
        """Cells of a buffer on both ranks."""
        return [[(x, color) for x in rank[key]] for rank in self.ranks]

    def own(self, key, color, other=None):
        """Cells of a rank's own chunk; those of the others are `other` (None: there is no memory)."""
        return [[(x, color) if rank["chunk"][0] <= j < rank["chunk"][1] else other and (x, other)
                 for j, x in enumerate(rank[key])] for rank in self.ranks]

    def row(self, title, words, *buffers):
        self.svg.text(0, self.y + 16, title, bold=True)
        for i, line in enumerate(words.split("\n")):
            self.svg.text(0, self.y + 34 + 15 * i, line, size=11)
        for i, (label, of_ranks) in enumerate(zip(self.labels, buffers)):
            for rank, cells in enumerate(of_ranks):
                x, y = self.LEFT + rank * self.WIDE, self.y + 32 * i
                self.svg.text(x - 8, y + 19, label, size=12, anchor="end")
                for j, cell in enumerate(cells):
                    number, color = cell or (None, None)
                    self.svg.cell(x + j * self.CELL, y, self.CELL, 28, number, color,
                                  mark=j == FOLLOWED and cell is not None)
        self.y += self.step


def zero1(data):
    p = Followed(data, 1, ["w", "g"], rows=4)
    used_up = p.own("reduced", GREEN, "#a7afb7")
    p.row("backward", "each rank: gradients\nof its own sequences", p.whole("w", DARK), p.whole("g", ORANGE))
    p.row("reduce-scatter", "own chunk: the sum;\nthe rest is used up", p.whole("w", DARK), used_up)
    p.row("update", "w - g, of the own chunk", p.own("updated", BLUE, DARK), used_up)
    p.row("all-gather", "all weights are new", p.whole("gathered", BLUE), used_up)
    return p.svg.done()


def zero2(data):
    p = Followed(data, 2, ["w", "buffer", "g"], rows=4)
    w, none, g = p.whole("w", DARK), p.NOTHING, p.own("reduced", GREEN)
    p.row("backward", "into a buffer, which is\nof one section", w, p.whole("g", ORANGE), none)
    p.row("reduce-scatter", "own chunk: copied, or\nadded to the sum so far;\nthe buffer is free again", w, none, g)
    p.row("update", "w - g, of the own chunk", p.own("updated", BLUE, DARK), none, g)
    p.row("all-gather", "all weights are new", p.whole("gathered", BLUE), none, g)
    return p.svg.done()


def zero3(data):
    p = Followed(data, 3, ["w", "buffer of w", "buffer of g", "g"], rows=5)
    w, none, g = p.own("w", DARK), p.NOTHING, p.own("reduced", GREEN)
    p.row("before", "own chunks alone", w, none, none, none)
    p.row("all-gather", "the section is whole in\na buffer, for forward and\nbackward", w, p.whole("w", DARK), none, none)
    p.row("backward", "into a buffer", w, p.whole("w", DARK), p.whole("g", ORANGE), none)
    p.row("reduce-scatter", "both buffers are free\nfor the next section", w, none, none, g)
    p.row("update", "w - g, of the own chunk.\nThe next step gathers it", p.own("updated", BLUE), none, none, g)
    return p.svg.done()


# ---- 11: columns, then rows ----------------------------------------------------------------------

X = [[1, 2, 0, 1], [0, 1, 3, 1]]
A = [[1, 0, 2, 1], [0, 1, 1, -2], [2, 1, 0, 1], [1, -3, 1, 0]]
B = [[1, 2, 0, 1], [0, 1, 1, 0], [1, 0, 2, 1], [2, 1, 0, 3]]


def product(left, right):
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*right)] for row in left]


def matrix(svg, x, y, name, numbers, fill):
    """`fill`: the color of (row, column)."""
    svg.text(x, y - 8, name, bold=True)
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            svg.cell(x + 30 * j, y + 28 * i, 30, 28, number, fill(i, j))
    return x + 30 * len(numbers[0])


def columns_then_rows(_):
    # Columns of A are rows of fc.w, rows of B are columns of proj_w: the code stores (N, K).
    colors, whole = [BLUE, ORANGE], lambda i, j: DARK
    owner = lambda k: k // 2
    svg = Svg(760, 556, "The MLP on two ranks: A is cut by columns, B by rows")
    svg.tip()
    end = matrix(svg, 20, 40, "X", X, whole)
    end = matrix(svg, end + 40, 40, "A, cut by columns", A, lambda i, j: colors[owner(j)])
    matrix(svg, end + 40, 40, "B, cut by rows", B, lambda i, j: colors[owner(i)])
    svg.text(end + 190, 70, "gelu is replaced by max(0, x) here,", size=12)
    svg.text(end + 190, 88, "so that numbers stay small.", size=12)
    parts = []
    for r, color in enumerate(colors):
        own = range(2 * r, 2 * r + 2)
        mine = lambda i, j: color
        y = 214 + 128 * r
        svg.text(20, y - 38, f"rank {r}", color, 15, bold=True)
        a, b = [[row[j] for j in own] for row in A], [B[i] for i in own]
        xa = product(X, a)
        h = [[max(0, x) for x in row] for row in xa]
        parts.append(product(h, b))
        end = matrix(svg, 20, y, f"X A{r + 1}", xa, mine)
        svg.arrow(end + 10, y + 28, end + 60, y + 28)
        svg.text(end + 35, y + 20, "gelu", size=11, anchor="middle")
        end = matrix(svg, end + 70, y, "H", h, mine)
        svg.text(end + 18, y + 32, "x", anchor="middle")
        end = matrix(svg, end + 36, y, f"B{r + 1}", b, mine)
        svg.text(end + 18, y + 32, "=", anchor="middle")
        end = matrix(svg, end + 36, y, f"summand of rank {r}", parts[-1], mine)
        svg.text(end + 20, y + 32, "neither rank has asked the other", size=12)
    total = [[a + b for a, b in zip(*rows)] for rows in zip(*parts)]
    svg.text(20, 446, "all-reduce (g): on both ranks", GREEN, 15, bold=True)
    end = matrix(svg, 20, 488, "Y = the sum of both summands", total, lambda i, j: GREEN)
    svg.text(end + 20, 520, "the same as max(0, X A) B on one rank", size=12)
    return svg.done()


# ---- 12: four schedules --------------------------------------------------------------------------

ACTIONS = {"F": (BLUE, "forward"), "B": (ORANGE, "backward, both gradients"),
           "I": ("#7a5195", "backward, gradient of the input"),
           "W": (GREEN, "backward, gradient of the weights")}


def schedules(data):
    """All bars stand there first, for prints, previews, and readers who want no motion. Then they
    appear as a line of time passes."""
    unit, row, left = 38, 26, 100
    longest = max(a[4] for p in data["pipelines"] for stage in p["stages"] for a in stage)
    height = 84 + sum(len(p["stages"]) * row + 30 for p in data["pipelines"])
    svg = Svg(left + unit * longest + 100, height, "Four schedules on two stages, four micro-batches")
    seconds, hold = longest / 3, 6
    whole = seconds + hold
    style = len(svg.out)
    y = 14
    for i, (letter, (color, label)) in enumerate(ACTIONS.items()):
        x = left + 265 * (i % 2)
        svg.box(x, y + 22 * (i // 2) - 12, 22, 16, color)
        svg.text(x + 11, y + 22 * (i // 2), letter, "#ffffff", 12, "middle")
        svg.text(x + 30, y + 22 * (i // 2), label, size=12)
    svg.text(left, y + 44, "A row is a stage, a number in it a micro-batch. Small letters: the second "
             "model chunk. Gray: the stage waits.", size=12)
    y += 70
    frames, used = [], set()
    for pipeline in data["pipelines"]:
        svg.text(0, y + 17, pipeline["name"], bold=True)
        for s, stage in enumerate(pipeline["stages"]):
            svg.text(left - 8, y + 17, f"{s}", size=11, anchor="end")
            svg.box(left, y + 1, unit * max(a[-1][4] for a in pipeline["stages"]), row - 2, GREY,
                    more=' fill-opacity="0.13"')
            for what, micro, chunk, begin, end in stage:
                # The bar is pale until the line of time has come to its begin.
                name = f"t{round(100 * begin / longest):03d}"
                if name not in used:
                    used.add(name)
                    pale = 100 * hold / whole
                    share = pale + 100 * begin / longest * seconds / whole
                    frames.append(f"@keyframes {name} {{0% {{opacity: 1}} {pale:.1f}% {{opacity: 0.1}} "
                                  f"{share:.1f}%, 100% {{opacity: 1}}}}"
                                  f".{name} {{animation: {name} {whole:g}s infinite steps(1)}}")
                label = (what.lower() if chunk % 2 else what) + str(micro)
                x, width = left + unit * begin, unit * (end - begin)
                svg.out.append(f'<g class="{name}">')
                svg.box(x + 1, y + 1, width - 2, row - 2, ACTIONS[what][0],
                        more=' fill-opacity="0.75"' if chunk % 2 else "")
                svg.text(x + width / 2, y + 17, label, "#ffffff", 11, "middle")
                svg.out.append("</g>")
            y += row
        svg.text(left + unit * max(a[-1][4] for a in pipeline["stages"]) + 8, y - 8,
                 f"idle {pipeline['idle']:.0%}", size=12)
        y += 30
    svg.out.insert(style, "<style>@media (prefers-reduced-motion: no-preference) {"
                   + "".join(frames) + "}</style>")
    return svg.done()


# ---- 19: a pair of channels is turned ------------------------------------------------------------

TOKENS = (DARK, BLUE, GREEN, ORANGE)


def pair_of_channels(svg, turned, x, y, radius):
    """The pair as each token has it: an arrow from the middle."""
    svg.out.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="none" stroke="{GREY}" '
                   'stroke-opacity="0.5"/>')
    for t, (first, second) in enumerate(turned):
        at_x, at_y = x + radius * first, y - radius * second
        svg.out.append(f'<path d="M{x} {y} L{at_x:.1f} {at_y:.1f}" stroke="{TOKENS[t]}" stroke-width="3"/>')
        side = "start" if first > 0 else "end"
        svg.text(at_x + (6 if first > 0 else -6), at_y + 4, f"token {t}", TOKENS[t], 12, side, bold=True)


def rope(data):
    """A pair in four tokens, the scores that follow, and who makes a pair with whom."""
    found = data["rope"]
    svg = Svg(664, 446, "Rotary positions: a pair of channels in four tokens, and who is a pair")
    svg.text(0, 16, "A pair (1, 0), turned by one radian a token", bold=True)
    pair_of_channels(svg, found["turned"], 150, 145, 80)
    svg.text(360, 16, "Query times key", bold=True)
    for u in range(4):
        svg.text(432 + 56 * u + 25, 40, f"key {u}", size=12, anchor="middle")
    for t, scores in enumerate(found["scores"]):
        svg.text(424, 66 + 34 * t, f"query {t}", size=12, anchor="end")
        for u, score in enumerate(scores):
            svg.box(433 + 56 * u, 47 + 34 * t, 50, 28, TOKENS[t - u])
            svg.text(458 + 56 * u, 66 + 34 * t, f"{score:.2f}", "#ffffff", 12, "middle")
    svg.text(360, 210, "One color, one distance: where the two", size=12)
    svg.text(360, 227, "tokens stand does not matter.", size=12)
    svg.text(0, 282, "Which channels are a pair, in a head of eight channels", bold=True)
    halves = [min(i, j) for i, j in enumerate(found["pairs"])]
    for y, title, pairs in [(300, "half-split: Hugging Face, Ladder", halves),
                            (352, "interleaved: the paper", [i // 2 for i in range(8)])]:
        svg.text(0, y + 22, title, size=12)
        for i, pair in enumerate(pairs):
            svg.cell(232 + 48 * i, y, 46, 34, i, TOKENS[pair])
    svg.text(0, 412, "The same model, with the rows of queries and keys in another order.", size=12)
    svg.text(0, 429, "A model whose checkpoint is read the other way writes noise.", size=12)
    return svg.done()


# ---- 20: who has which tokens, a ring in four steps, tokens for heads ----------------------------

RANKS = (BLUE, ORANGE, GREEN, "#7a5195")


def rank_names(svg, x, y, count):
    for rank in range(count):
        svg.box(x + 84 * rank, y - 12, 16, 16, RANKS[rank])
        svg.text(x + 84 * rank + 22, y, f"rank {rank}", size=12)


def mask(svg, x, y, title, order):
    """The pairs of a causal mask, each in the color of the rank that has the query."""
    owners, pairs, cell = order["owners"], order["pairs"], 15
    svg.text(x, y, title, bold=True)
    svg.text(x + 8 * cell, y + 20, "key", size=11, anchor="middle")
    svg.text(x - 6, y + 32 + 8 * cell, "query", size=11, anchor="end")
    for t, owner in enumerate(owners):
        for u in range(t + 1):
            svg.box(x + cell * u + 0.5, y + 27 + cell * t + 0.5, cell - 1, cell - 1, RANKS[owner])
    top = y + 27 + 16 * cell + 20
    longest = max(pairs)
    for rank, count in enumerate(pairs):
        svg.text(x - 6, top + 22 * rank + 12, f"rank {rank}", size=11, anchor="end")
        svg.box(x, top + 22 * rank, 200 * count / longest, 16, RANKS[rank])
        svg.text(x + 200 * count / longest + 6, top + 22 * rank + 12, f"{count} pairs", size=11)
    share = sum(pairs) / len(pairs) / longest
    svg.text(x, top + 22 * len(pairs) + 14, f"mean pairs / pairs of the busiest rank: {share:.0%}", size=12)


def zigzag(data):
    """Who has which of 16 tokens, the leaves that they are, and the pairs that each rank has."""
    orders = data["token_orders"]
    svg = Svg(700, 532, "A sequence on four ranks, in zig-zag and in contiguous order")
    rank_names(svg, 50, 16, 4)
    svg.text(0, 52, "token", size=11)
    svg.text(0, 76, "leaf", size=11)
    for t, (owner, leaf) in enumerate(zip(orders["zigzag"]["owners"], orders["leaves"])):
        svg.text(50 + 36 * t + 18, 52, str(t), size=11, anchor="middle")
        svg.cell(50 + 36 * t, 58, 36, 26, leaf, RANKS[owner])
    svg.text(50, 102, "A leaf is an early token and a late one. Each rank has two whole leaves: "
             "a quarter of the tree.", size=12)
    mask(svg, 50, 132, "zig-zag", orders["zigzag"])
    mask(svg, 410, 132, "contiguous", orders["contiguous"])
    return svg.done()


def owner_of_run(run, ranks):
    return min(run, 2 * ranks - 1 - run)


def ring_of_keys(data):
    """Four steps. A box is a rank, and in it are the keys that it has."""
    steps = data["ring_of_keys"]
    wide, places = 228, [(8, 0), (122, 0), (122, 92), (8, 92)]  # of four boxes, clockwise
    svg = Svg(4 * wide, 336, "A ring of keys and values on four ranks, step by step")
    svg.tip()
    svg.text(8, 14, "In a box: the runs whose keys and values the rank holds. The color is that of their "
             "owner.", size=12)
    for step, ranks in enumerate(steps):
        x, y = wide * step, 52
        svg.text(x + 8, y - 10, f"step {step}", bold=True)
        for rank, (dx, dy) in enumerate(places):
            svg.box(x + dx, y + dy, 86, 62, stroke=RANKS[rank], more=' stroke-width="2"')
            svg.text(x + dx + 43, y + dy + 17, f"rank {rank}", RANKS[rank], 12, "middle", bold=True)
            for i, run in enumerate(ranks[rank]["keys"]):
                svg.cell(x + dx + 8 + 36 * i, y + dy + 26, 34, 28, run,
                         RANKS[owner_of_run(run, len(ranks))])
        if step + 1 < len(steps):
            svg.arrow(x + 96, y + 31, x + 120, y + 31)
            svg.arrow(x + 165, y + 64, x + 165, y + 90)
            svg.arrow(x + 120, y + 123, x + 96, y + 123)
            svg.arrow(x + 51, y + 90, x + 51, y + 64)
        svg.text(x + 8, y + 182, "then rank 0 has the softmax of", RANKS[0], 12)
        at = x + 8
        for waiting in sorted(ranks[0]["waiting"], key=lambda sum_: sum_.strip("(")):
            words = "all eight, as a tree" if waiting.count("+") == 7 else waiting.strip("()")
            width = 7 * len(words) + 14
            svg.box(at, y + 192, width, 24, DARK)
            svg.text(at + width / 2, y + 208, words, "#ffffff", 12, "middle")
            at += width + 6
    svg.text(8, 300, "Every run gives a partial softmax. It waits until its sibling in the tree is "
             "there, and the two are merged, the lower run first.", size=12)
    svg.text(8, 318, "Other ranks get the runs in another order, and merge the same pairs.", size=12)
    return svg.done()


def tokens_for_heads(data):
    """Four heads and four runs on two ranks: before and after an all-to-all."""
    svg = Svg(700, 244, "Ulysses on two ranks: tokens are exchanged for heads")
    svg.tip()
    rank_names(svg, 60, 16, 2)
    owner = {"tokens": lambda head, run: owner_of_run(run, 2), "heads": lambda head, run: head // 2}
    for x, title, has in [(60, "everywhere else: some tokens, all heads", "tokens"),
                          (430, "in attention: all tokens, some heads", "heads")]:
        svg.text(x, 46, title, bold=True)
        for run in range(4):
            svg.text(x + 50 * run + 25, 66, f"run {run}", size=11, anchor="middle")
        for head in range(4):
            svg.text(x - 6, 92 + 32 * head, f"head {head}", size=11, anchor="end")
            for run in range(4):
                travels = owner["tokens"](head, run) != owner["heads"](head, run)
                svg.box(x + 50 * run + 1.5, 74 + 32 * head + 1.5, 47, 29, RANKS[owner[has](head, run)])
                if travels:
                    svg.text(x + 50 * run + 25, 93 + 32 * head,
                             "leaves" if has == "tokens" else "came", "#ffffff", 10, "middle")
    svg.arrow(275, 118, 372, 118)
    svg.text(324, 110, "q, k, v", size=12, anchor="middle")
    svg.arrow(372, 158, 275, 158)
    svg.text(324, 150, "output", size=12, anchor="middle")
    svg.text(60, 230, "A rank has 1/cp of all numbers and sends (cp - 1) / cp of these: a half with two ranks.", size=12)
    return svg.done()


# ---- 21: experts ---------------------------------------------------------------------------------

EXPERTS = [BLUE, ORANGE, GREEN, "#7a5195"]


def experts(data):
    """Scores, choices, the rows of each expert, and what is dropped."""
    found = data["experts"]
    svg = Svg(664, 392, "Experts: scores, choices, rows sorted by expert")
    svg.text(0, 16, "Scores, and the two experts of each token", bold=True)
    for e in range(4):
        svg.text(90 + 56 * e, 40, f"expert {e}", EXPERTS[e], 12, "middle")
    svg.text(316, 40, "factors w", size=12)
    for t, scores in enumerate(found["scores"]):
        y = 47 + 30 * t
        svg.text(52, y + 18, f"token {t}", size=12, anchor="end")
        for e, score in enumerate(scores):
            chosen = e in found["chosen"][t]
            svg.box(63 + 56 * e, y, 54, 26, EXPERTS[e] if chosen else "none", "none" if chosen else GREY)
            svg.text(90 + 56 * e, y + 18, f"{score:.2f}", "#ffffff" if chosen else GREY, 12, "middle")
        svg.text(316, y + 18, " + ".join(f"{w:.2f} E{e}" for e, w in
                                         zip(found["chosen"][t], found["weights"][t])), size=12)
    svg.text(0, 262, "Rows: twelve pairs of a token and an expert, sorted by expert", bold=True)
    x = 0
    for e, tokens in enumerate(found["rows"]):
        svg.text(x, 286, f"expert {e}", EXPERTS[e], 12)
        for i, t in enumerate(tokens):
            dropped = t not in found["kept"][e]
            svg.box(x + 52 * i, 294, 50, 30, EXPERTS[e], more=' fill-opacity="0.35"' if dropped else "")
            svg.text(x + 52 * i + 25, 314, f"t {t}", "#ffffff" if not dropped else GREY, 12, "middle")
        x += 52 * len(tokens) + 10
    svg.text(0, 350, "One grouped product takes each expert's rows through its own matrices.", size=12)
    svg.text(0, 370, "Pale: what --capacity 1 drops, as an expert then takes the first 6 x 2 / 4 = 3 tokens.",
             size=12)
    return svg.done()


# ---- 22: eight tokens on two ranks, four experts -------------------------------------------------

def experts_of(digits):
    """Whose outputs are in a sum, where expert e has given 10^e."""
    return [e for e, digit in enumerate(reversed(f"{digits:.0f}")) if digit == "1"]


def exchange(data):
    """Choices, rows that travel, rows of experts, and what comes back."""
    ranks = data["exchanged_tokens"]
    wide, own = 352, len(ranks[0]["chosen"])
    svg = Svg(2 * wide - 20, 478, "Eight tokens on two ranks, four experts")
    home = lambda token: token // own

    def row(rank, y, tokens, words, fills, marked, cell=50):
        for i, (token, word, fill) in enumerate(zip(tokens, words, fills)):
            x = rank * wide + (cell + 2) * i
            svg.box(x, y, cell, 28, fill)
            if marked(token):
                svg.box(x, y, cell, 28, stroke="#e0a100", more=' stroke-width="2.5"')
            svg.text(x + cell / 2, y + 18, word, "#ffffff", 11, "middle")

    svg.text(0, 58, "A token chooses two of four experts:", size=12)
    svg.text(0, 158, "To the owners: a token goes once to each rank that has an expert of it.", size=12)
    svg.text(0, 226, "Dispatch: rows of each expert, tokens in order.", size=12)
    svg.text(0, 328, "Combine: each owner adds up what its experts gave for a token. The sum goes back.", size=12)
    svg.text(0, 396, "The token's own rank adds the sums:", size=12)
    svg.text(0, 472, "Framed in yellow: what travels between the ranks.", size=12)
    for rank, found in enumerate(ranks):
        x = rank * wide
        names = [f"E{2 * rank + e}" for e in range(len(found["rows"]))]
        svg.text(x, 16, f"rank {rank}", bold=True)
        svg.text(x, 36, f"owner of {' and '.join(names)}; origin of t {own * rank} to t {own * rank + own - 1}",
                 size=12)
        mine = range(own * rank, own * rank + own)
        for i, (token, chosen) in enumerate(zip(mine, found["chosen"])):
            svg.text(x + 82 * i, 84, f"t {token}", size=12)
            for j, e in enumerate(chosen):
                svg.box(x + 82 * i + 32 * j, 92, 30, 26, EXPERTS[e])
                svg.text(x + 82 * i + 32 * j + 15, 110, f"E{e}", "#ffffff", 11, "middle")
        away = lambda token: home(token) != rank
        arrived = found["arrived"]
        row(rank, 168, arrived, [f"t {t}" for t in arrived], [DARK] * len(arrived), away)
        for e, tokens in enumerate(found["rows"]):
            y = 236 + 32 * e
            svg.text(x, y + 18, names[e], EXPERTS[2 * rank + e], 12)
            for i, t in enumerate(tokens):
                svg.box(x + 30 + 52 * i, y, 50, 28, EXPERTS[2 * rank + e])
                svg.text(x + 55 + 52 * i, y + 18, f"t {t}", "#ffffff", 11, "middle")
        sums = [experts_of(digits) for digits in found["sums"]]
        row(rank, 338, arrived, ["+".join(f"E{e}" for e in some) for some in sums],
            [EXPERTS[some[0]] if len(some) == 1 else DARK for some in sums], away)
        for i, (token, digits) in enumerate(zip(mine, found["joined"])):
            some = experts_of(digits)
            one = home_of_expert(some[0]) == home_of_expert(some[-1])
            svg.text(x + 82 * i, 418, f"t {token}", size=12)
            svg.box(x + 82 * i, 424, 74, 26, DARK)
            svg.text(x + 82 * i + 37, 442, "+".join(f"E{e}" for e in some) if one else
                     " + ".join(f"E{e}" for e in some), "#ffffff", 11, "middle")
    return svg.done()


def home_of_expert(expert):
    return expert // 2


# ---- 24: merges ----------------------------------------------------------------------------------


def merges(data):
    """Words as tokens, before the first merge and after each."""
    found = data["merges"]
    steps = [{"words": [list(word) for word, _ in found["words"]]}, *found["steps"]]
    svg = Svg(720, 34 + 66 * len(steps), "Four words, and their first merges")
    lefts = [150, 260, 400, 560]
    for x, (word, count) in zip(lefts, found["words"]):
        svg.text(x, 16, f"{word}, {count} times", bold=True)
    for i, step in enumerate(steps):
        y = 32 + 66 * i
        total = sum(len(word) * count for word, (_, count) in zip(step["words"], found["words"]))
        svg.text(0, y + 14, "bytes" if i == 0 else f"{step['pair'][0]} + {step['pair'][1]}, {step['count']} times",
                 bold=True)
        svg.text(0, y + 30, f"{total} tokens in all", size=11)
        if i > 0 and len(step["equal"]) > 1:
            others = [f"{a} + {b}" for a, b in step["equal"] if [a, b] != step["pair"]]
            svg.text(0, y + 46, f"as frequent: {', '.join(others)}", ORANGE, 11)
        for x, word in zip(lefts, step["words"]):
            for token in word:
                wide = 8 + 9 * len(token)
                is_new = i > 0 and token == "".join(step["pair"])
                svg.box(x, y, wide, 26, ORANGE if is_new else BLUE if len(token) > 1 else DARK)
                svg.text(x + wide / 2, y + 17, token, "#ffffff", 12, "middle")
                x += wide + 3
    return svg.done()


# ---- 26: documents in rows -----------------------------------------------------------------------

END = "\u00b7"


def documents_in_rows(data):
    """Each row: tokens, positions and targets of its documents; and which key a query sees."""
    found, cell = data["packing"], 30
    words, T, fills = found["words"], found["T"], (BLUE, GREEN, ORANGE)
    svg = Svg(640, 72 + 214 * len(found["rows"]), "Three documents in two rows: tokens, positions, targets, mask")
    for x, word, fill in zip((0, 170, 380), words, fills):
        svg.text(x, 18, "document", size=11)
        for i, token in enumerate(word + END):
            svg.cell(x + 60 + i * 22, 2, 22, 24, token, fill)
    for r, row in enumerate(found["rows"]):
        y = 62 + 214 * r
        svg.text(0, y, f"row {r}", bold=True)
        cells = [(d, i) for d in row for i in range(len(words[d]))]
        cells += [None] * (T - len(cells))
        for line, name in enumerate(("token", "position", "target")):
            top = y + 14 + 40 * line
            svg.text(0, top + 19, name)
            for t, at in enumerate(cells):
                said = ["" if at is None else (words[at[0]] + END)[at[1]], "" if at is None else at[1],
                        "" if at is None else (words[at[0]] + END)[at[1] + 1]][line]
                svg.cell(70 + t * cell, top, cell, cell, said, at and fills[at[0]])
        left = 370
        svg.text(left - 14, y + 14 + T * cell / 2, "query", size=11, anchor="end")
        svg.text(left + T * cell / 2, y + 8, "key", size=11, anchor="middle")
        for t, query in enumerate(cells):
            for u, key in enumerate(cells):
                sees = query and key and query[0] == key[0] and u <= t
                svg.cell(left + u * cell, y + 14 + t * cell, cell, cell, "", fills[query[0]] if sees else None)
    return svg.done()


# ---- 27: an epoch dealt to four ranks -------------------------------------------------------------


def dealt_epoch(data):
    """Documents as boxes, as wide as they have positions: in their files, dealt, and in rows."""
    found, ranks, wide, gap = data["dealt_epoch"], 4, 11, 16
    lengths, colors, left = found["lengths"], [BLUE, ORANGE], 96
    svg = Svg(870, 262, "An epoch of two sources, dealt to four ranks")

    def box(x, y, document):
        s, i = document
        width = wide * lengths[s][i]
        svg.box(x, y, width - 2, 26, colors[s])
        svg.text(x + width / 2 - 1, y + 17, f"{'ab'[s]}{i}", "#ffffff", 11, "middle")
        return x + width

    for s, weight in enumerate(found["weights"]):
        y, x = 22 + 34 * s, left
        svg.text(0, y + 12, f"source {'ab'[s]}", colors[s], bold=True)
        svg.text(0, y + 26, f"weight {weight}", size=11)
        for i in range(len(lengths[s])):
            x = box(x, y, (s, i))
    svg.text(0, 122, "dealt", bold=True)
    svg.text(0, 136, "in two windows", size=11)
    x = left
    for window in found["dealt"]:
        for document in window:
            x = box(x, 110, document)
        x += gap
    svg.text(0, 194, "rows", bold=True)
    svg.text(0, 208, "of 8 positions", size=11)
    x, row = left, 0
    for window, rows in enumerate(found["windows"]):
        svg.text(x, 174, f"window {window}", size=11)
        for documents in rows:
            svg.box(x - 2, 180, 8 * wide + 2, 30, stroke=GREY)
            at = x
            for document in documents:
                at = box(at, 182, document)
            step, rank = divmod(row, ranks)
            svg.text(x + 4 * wide, 230, f"rank {rank}", anchor="middle", bold=True)
            if rank == 0:
                svg.text(x, 248, f"step {step}", bold=True)
            x, row = x + 8 * wide + 4, row + 1
        x += gap
    return svg.done()


# ---- 30: two machines of four ranks -----------------------------------------------------------------

def hybrid(data):
    """A section of four parameters. Each rank's gradient is its number and one more, in all of them."""
    wide, cell, machines = 108, 22, (138, 640)
    svg = Svg(1090, 340, "Hybrid sharding on two machines of four ranks")
    svg.tip()
    ranks = [machines[r // 4] + wide * (r % 4) for r in range(8)]
    gradient = [r + 1 for r in range(8)]
    inside = [sum(gradient[4 * machine:4 * machine + 4]) for machine in range(2)]
    for machine, x in enumerate(machines):
        svg.box(x - 10, 22, 4 * wide, 210, stroke=GREY)
        svg.text(x + 2 * wide - 6, 14, f"machine {machine}, one model in 4 shards", anchor="middle", bold=True)
    for r, x in enumerate(ranks):
        svg.text(x + 2 * cell, 42, f"rank {r}", anchor="middle", bold=True)
    rows = [("backward", lambda r, j: (gradient[r], ORANGE)),
            ("reduce-scatter", lambda r, j: (inside[r // 4], BLUE) if j == r % 4 else (None, "")),
            ("all-reduce", lambda r, j: (sum(inside), GREEN) if j == r % 4 else (None, ""))]
    for i, (name, of) in enumerate(rows):
        y = 60 + 66 * i
        svg.text(4, y + 16, name, bold=True)
        svg.text(4, y + 32, ["each micro-step", "each micro-step", "once a step"][i], size=11)
        for r, x in enumerate(ranks):
            for j in range(4):
                svg.cell(x + cell * j, y, cell + 2, 26, *of(r, j))
    for s in range(4):  # rank s and rank s + 4
        y, left, right = 254 + 24 * s, ranks[s] + cell * (s + 0.5), ranks[s + 4] + cell * (s + 0.5)
        svg.out.append(f'<path d="M{left:g} 222 V{y} H{right:g} V222" stroke="{GREEN}" fill="none" '
                       'stroke-width="1.5"/>')
        svg.text((machines[0] + 4 * wide + machines[1]) / 2 - 16, y - 5, f"{inside[0]} + {inside[1]}", GREEN, 12,
                 "middle")
    svg.text(4, 294, "slow links", GREEN, bold=True)
    return svg.done()


# ---- 31: what is read for a token ----------------------------------------------------------------

def cached(data):
    """A row for each token that is computed: which keys it reads, who wrote them, and its tree."""
    passes, window, chunk = (data["cached"][name] for name in ("passes", "window", "chunk"))
    cell, left, top = 40, 150, 74
    svg = Svg(760, top + cell * passes[-1][1] + 118, "What attention reads for a token, with a cache")
    svg.text(left, 14, "key and value of token", size=12)
    svg.text(left + window * cell + 40, 14, "the sum over keys", size=12)
    for first in range(0, window, chunk):
        x = left + first * cell
        svg.text(x + chunk * cell / 2, 36, f"chunk {first // chunk}", anchor="middle", bold=True)
        svg.box(x + 2, 42, chunk * cell - 4, 3, GREY)
    for u in range(window):
        svg.text(left + u * cell + cell / 2, 64, str(u), size=11, anchor="middle")
    writer = {t: RANKS[i] for i, (begin, end) in enumerate(passes) for t in range(begin, end)}
    for i, (begin, end) in enumerate(passes):
        for t in range(begin, end):
            y = top + t * cell
            svg.text(0, y + 25, f"pass {i + 1}, token {t}", RANKS[i], 12, bold=True)
            for u in range(window):
                svg.cell(left + u * cell, y, cell, cell - 8, f"k{u}" if u <= t else None,
                         writer[u] if u <= t else "", mark=begin <= u <= t)
            sums = " + ".join(f"c{c}" for c in range(t // chunk + 1))
            absent = [f"c{c}" for c in range(t // chunk + 1, window // chunk)]
            svg.text(left + window * cell + 40, y + 22,
                     sums + (f"   ({', '.join(absent)} absent)" if absent else ""), size=12)
    below = top + cell * passes[-1][1] + 16
    for line, words in enumerate([
            "The color of a key is that of the pass which wrote it. Keys with a frame are written by the pass that "
            "reads them;", "the others come from the cache. Dashed: not read, because it is later, or not written yet.",
            "Chunks end where those of the window do, whatever the text has so far."]):
        svg.text(0, below + 20 * line + 14, words, size=12)
    return svg.done()


# ---- 32: singular values before and after Newton-Schulz -------------------------------------------

def stretched(s, steps=5):
    """What becomes of a singular value of X."""
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


def singular_values(data):
    """Both axes are logarithmic, from 1e-5 to 1 and from 1e-5 to 2."""
    left, top, decade = 70, 30, 96
    x, y = lambda s: left + decade * (5 + math.log10(s)), lambda s: top + 0.62 * decade * (0.3 - math.log10(s))
    svg = Svg(left + 5 * decade + 130, 406, "Singular values of a matrix before and after five steps of Newton-Schulz")
    svg.tip()
    low, high = (f(stretched(10**(-k / 5000)) for k in range(13_900)) for f in (min, max))
    svg.box(x(1e-5), y(high), 5 * decade, y(low) - y(high), GREEN, more=' fill-opacity="0.25"')
    svg.text(x(1) + 12, y(0.9) + 4, f"{low:.2f} to {high:.2f}", GREEN, bold=True)
    for k in range(6):
        name = "1" if k == 5 else f"0.{'0' * (4 - k)}1"
        svg.text(x(10**(k - 5)), y(1e-5) + 18, name, size=11, anchor="middle")
        svg.text(left - 8, y(10**(k - 5)) + 4, name, size=11, anchor="end")
    for steps, color, label in ((0, GREY, "before"), (1, ORANGE, "after one step"), (5, BLUE, "after five")):
        points = [10**(-5 + k / 100) for k in range(501)]
        dashed = ' stroke-dasharray="3 4"'
        path = " L".join(f"{x(s):.1f} {y(stretched(s, steps)):.1f}" for s in points)
        svg.out.append(f'<path d="M{path}" stroke="{color}" fill="none" stroke-width="1.8"'
                       f'{dashed if steps == 0 else ""}/>')
        beside = (8, 14, "start") if steps == 0 else (-8, -4, "end")
        svg.text(x(4e-4) + beside[0], y(stretched(4e-4, steps)) + beside[1], label, color, 12, beside[2])
    for s in (4e-5, 1e-3, 0.01, 0.06, 0.3, 0.9):
        svg.arrow(x(s), y(s) - 3, x(s), y(stretched(s)) + (3 if stretched(s) > s else -5), DARK)
    svg.out.append(f'<path d="M{x(0.0016):.1f} {y(1e-5):.1f} V{y(high):.1f}" stroke="{GREEN}" stroke-dasharray="2 3"/>')
    for i, words in enumerate(("from 0.0016 on all directions become", "nearly equally long; smaller ones have",
                               "grown 485-fold, and stay small")):
        svg.text(x(0.002), y(7e-5) + 16 * i, words, size=12)
    svg.text(left + 2.5 * decade, y(1e-5) + 40, "singular value / norm of the matrix", anchor="middle")
    return svg.done()


# ---- 33: a box of ranks --------------------------------------------------------------------------

def box_of_ranks(data):
    """All ranks of a mesh of five axes of two, and the groups of one of them."""
    axes, own = "tcsgp", 13
    groups = (("t", "tensor: products inside a block", BLUE),
              ("cs", "context and shard: gradients, in every micro-step", ORANGE),
              ("g", "replica: the same, once a step", GREEN),
              ("p", "stage: activations, from stage to stage", RED))
    at = lambda rank, axis: rank >> axes.index(axis) & 1
    alike = lambda rank, free: all(at(rank, a) == at(own, a) for a in axes if a not in free)
    cell, high, block, left, top = 52, 34, 300, 130, 52
    svg = Svg(left + 2 * block - 30, 392, f"A mesh of 32 ranks, and the groups of rank {own}")
    for rank in range(2**len(axes)):
        t, c, s, g, p = (at(rank, a) for a in axes)
        x, y = left + block * p + (2 * cell + 24) * c + cell * t, top + 100 * g + high * s
        color = next((color for free, _, color in groups if alike(rank, free)), "")
        color = DARK if rank == own else color
        svg.cell(x, y, cell, high, str(rank) if color else None, color, mark=rank == own)
        if not color:
            svg.text(x + cell / 2, y + high / 2 + 4, str(rank), size=12, anchor="middle")
    for p in range(2):
        x = left + block * p
        svg.text(x + 2 * cell + 12, 14, f"stage {p}", anchor="middle", bold=True)
        for c in range(2):
            svg.text(x + (2 * cell + 24) * c + cell, 36, f"context {c}", size=11, anchor="middle")
        svg.box(x - 6, top + 94, 4 * cell + 36, 2 * high + 12, stroke=GREY, more=' stroke-width="2"')
    for g in range(2):
        svg.text(0, top + 100 * g + 20, f"replica {g}", bold=True)
        for s in range(2):
            svg.text(68, top + 100 * g + high * s + 20, f"shard {s}", size=11)
    for i, (free, words, color) in enumerate(groups):
        y = 262 + 24 * i
        ranks = " ".join(str(r) for r in range(2**len(axes)) if alike(r, free))
        svg.box(0, y - 11, 14, 14, color)
        svg.text(22, y, words, size=12)
        svg.text(340, y, ranks, color, 12, bold=True)
    svg.box(1, 348, 12, 12, stroke=GREY, more=' stroke-width="2"')
    svg.text(22, 358, f"all but replica: the norm, over the ranks that have the model of rank {own} once", size=12)
    svg.text(22, 380, "Two cells side by side are tensor ranks 0 and 1.", size=12)
    return svg.done()


# ---- 36: a row of two chats, and which targets are learned --------------------------------------

def masked_row(_):
    """Tokens of one letter; `+` begins an answer, and a bar ends a message."""
    chats, cell = (["user:", "Hi", "|", "asst:", "+Ho", "+|"], ["user:", "?", "|", "asst:", "+No", "+.", "+|"]), 60
    svg = Svg(110 + 11 * cell, 170, "A row of two chats: what is read, what is the target, what is learned")
    for line, name in enumerate(("read", "target", "learned")):
        svg.text(0, 40 + 44 * line, name, bold=True)
    at = 90
    for chat, fill in zip(chats, (BLUE, GREEN)):
        for token, target in zip(chat, chat[1:]):
            learned = target.startswith("+")
            svg.cell(at, 14, cell, 36, token.lstrip("+"), fill)
            svg.cell(at, 58, cell, 36, target.lstrip("+"), fill if learned else None, mark=learned)
            svg.text(at + cell / 2, 128, "1/n" if learned else "-", size=12, anchor="middle")
            if not learned:
                svg.text(at + cell / 2, 80, target, size=12, anchor="middle")
            at += cell
    svg.text(0, 158, "| ends a message, and is one token. Five targets are learned: n is 5. A chat of k tokens has k - 1 "
             "positions.", size=12)
    return svg.done()


# ---- 37: what the tokens of a group weigh ---------------------------------------------------------

def weighed_group(_):
    """Three answers of 2, 3 and 4 tokens to a prompt; | ends an answer. A = 2/3 or -1/3 over std = 0.5774."""
    answers, cell = ((["46", "|"], 1, "1.15"), (["4", "7", "|"], 0, "-0.58"), (["6", "4", "6", "|"], 0, "-0.58")), 60
    svg = Svg(90 + 8 * cell + 130, 210, "A prompt and three answers: what each token weighs")
    svg.text(0, 20, "prompt", bold=True)
    for line, (tokens, reward, advantage) in enumerate(answers):
        y = 32 + 50 * line
        svg.text(0, y + 22, f"answer {line}", bold=True)
        for at, token in enumerate(["12", "+", "34"] + tokens):
            learned = at >= 3
            fill = (GREEN if reward else RED) if learned else BLUE
            svg.cell(70 + cell * at, y, cell, 26, token, fill, mark=learned)
            svg.text(70 + cell * at + cell / 2, y + 40, f"{advantage}/9" if learned else "-", size=12, anchor="middle")
        svg.text(90 + 7 * cell, y + 20, f"R = {reward},  A = {advantage}", size=12)
    svg.text(0, 198, "| ends an answer. Nine tokens are learned, so each weighs A / 9. With --advantage mean A is "
             "2/3 and -1/3, over a constant.", size=12)
    return svg.done()


PICTURES = {
    "07_ddp/ring.svg": ring,
    "07_ddp/halving.svg": halving,
    "08_zero1/followed.svg": zero1,
    "09_zero2/followed.svg": zero2,
    "10_zero3/followed.svg": zero3,
    "11_tensor_parallel/columns_rows.svg": columns_then_rows,
    "12_pipeline_parallel/schedules.svg": schedules,
    "19_llama/rope.svg": rope,
    "20_context_parallel/zigzag.svg": zigzag,
    "20_context_parallel/ring.svg": ring_of_keys,
    "20_context_parallel/tokens_for_heads.svg": tokens_for_heads,
    "21_moe/experts.svg": experts,
    "22_expert_parallel/exchange.svg": exchange,
    "24_tokenizer/merges.svg": merges,
    "26_packing/rows.svg": documents_in_rows,
    "27_data_order/epoch.svg": dealt_epoch,
    "30_hsdp/machines.svg": hybrid,
    "31_generate/cached.svg": cached,
    "32_optimizers/singular_values.svg": singular_values,
    "33_mesh/groups.svg": box_of_ranks,
    "36_finetune/mask.svg": masked_row,
    "37_rl/weights.svg": weighed_group,
}


def faults_of(root, data, repair=False):
    """Pictures that are not as this script draws them; `repair` draws them."""
    return [fault for name, draw in PICTURES.items()
            for fault in settle(root, f"chapters/{name}", lambda _, draw=draw: draw(data), repair, "scripts/pictures.py")]


def main(words):
    if words not in ([], ["--check"]):
        print(f"pictures.py: {' '.join(words)}: legal is --check, or nothing", file=sys.stderr)
        return 2
    return tell(faults_of(ROOT, json.loads(DATA.read_text(encoding="utf-8")), repair=not words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
