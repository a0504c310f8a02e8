"""What the grader takes of a student's file: the bodies of the lab's functions, and what stands between
the marks of "yours", where the lab's file has them. It puts them into the tree's file: a mistake
elsewhere costs nothing. What is taken must close each brace that it opens, after preprocessing, too.

Taken code may forge a score, since the checks run in its process. look_at() tells a person where.
"""

import hashlib
import re
from collections import Counter

from .functions import each_token, tokens
from .labs import holes

DEEPER = {"{": 1, "<%": 1, "}": -1, "%>": -1}
# Words that no lab needs: they read what is not the function's, write what check.cpp writes, or leave.
SIGNS = {"#", "%:", "\\", "$"}
NAMES = re.compile(
    r"""reinterpret_cast|bit_cast|stdin|cin|getenv|extern|asm|Sheet|lab|(?:__|_[A-Z])\w*|pthread_\w*|\w*exit\w*|abort|terminate|raise|kill
    |signal|sigaction|setjmp|longjmp|v?fork|clone|exec[lv]\w*|system|popen|syscall|ptrace|mmap|dlopen|dlsym|(?:f|fd|fre)open|\w*fstream|dup[23]?|pipe2?|fcntl""",
    re.VERBOSE,
)
# Words of CUDA that kernels are written with, and no other file.
CUDA = re.compile(r"__(?:shared|device|global|restrict|host|forceinline)__|__(?:syncthreads|syncwarp|shfl_(?:xor_|up_|down_)?sync|ballot_sync|any_sync|popc|clz)|__launch_bounds__|__align__")
WORDS = re.compile(r"/proc|/dev|/etc|init_array")  # in a string: files of the system; sections that run before main()
RUN = 5  # tokens: so many in a row are seldom the same by chance
MOST, LONGEST = 50, 120  # lines that are shown, and characters of one
BEGIN, END = "// yours: members and functions that you add\n", "// end of yours\n"


class NotTaken(Exception):
    """Why nothing of a file is taken: one sentence."""


def places(tree, spans):
    """[(tokens in front of a body with its brace, how often they come from the body before to there)]"""
    found, after = [], 0
    words = tokens(tree)
    for begin, _ in spans:
        at = next(i for i, (_, _, start) in enumerate(words) if start == begin)
        first, depth = at, 0  # depth: braces of a default argument end no head
        while first > after and (depth or words[first - 1][1] not in (";", "{", "}")):
            first -= 1
            depth += (words[first][1] == ")") - (words[first][1] == "(")
        first += 2 * (words[first][1] in ("public", "private", "protected"))
        head = [token for _, token, _ in words[first : at + 1]]
        found.append((head, len(occurrences([token for _, token, _ in words[after : at + 1]], head))))
        after = at
    return found


def occurrences(words, head):
    return [i for i in range(len(words) - len(head) + 1) if words[i] == head[0] and words[i : i + len(head)] == head]


def end_of(words, at):
    """Behind the token that closes the brace at `at`."""
    depth = 0
    for i in range(at, len(words)):
        depth += DEEPER.get(words[i], 0)
        if depth == 0:
            return i + 1
    return None


def found_in(text, tree, spans, where):
    """[(begin, end) of each body in a student's text] @throws NotTaken"""
    cut = tokens(text)
    words, after, bodies = [token for _, token, _ in cut], 0, []
    for head, count in places(tree, spans):
        there = occurrences(words[after:], head)
        if len(there) < count:
            why = "does not come in the order of the lab's file, or a brace before it is missing" if occurrences(words, head) else "is not there"
            raise NotTaken(f"{where}: the function that begins with `{' '.join(head[:-1])}` {why}")
        brace = after + there[count - 1] + len(head) - 1
        after = end_of(words, brace)
        if after is None:
            raise NotTaken(f"{where}: nothing closes the body of `{' '.join(head[:-1])}`")
        bodies.append((cut[brace][2], cut[after - 1][2] + 1))
    return bodies


def within(text, begin, end):
    """(begin, end) of what stands between two lines; None where they are not."""
    first, last = text.find(begin), text.find(end)
    return (first + len(begin), text.rfind("\n", 0, last) + 1) if 0 <= first < last else None


def encoding(path):
    """A sentence about a file that is not UTF-8. It may be: comments are of any letters."""
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return [f"{path.name}: is not UTF-8; it is read as Latin-1, which costs no points"]
    return []


def read(path):
    """A text with the ends of lines that the tree has. What is not UTF-8 is taken for Latin-1. @throws NotTaken"""
    data = path.read_bytes()
    if b"\0" in data:
        raise NotTaken(f"{path.name}: is no text in UTF-8")
    return data.decode("latin-1" if encoding(path) else "utf-8").replace("\r\n", "\n")


def taken(lab, path, text):
    """[(begin, end) in the tree's file, (begin, end) in a student's] without the braces of bodies. @throws NotTaken"""
    tree = read(lab.root / path)
    spans = holes(lab, path)
    pairs = zip(spans, found_in(text, tree, spans, path.rpartition("/")[2]))
    pieces = [((a + 1, b - 1), (c + 1, d - 1)) for (a, b), (c, d) in pairs]
    ours, theirs = within(tree, BEGIN, END), within(text, BEGIN, END)
    return pieces + ([(ours, theirs)] if ours and theirs else [])


def merged(lab, path, text):
    """The tree's file with what is taken of a student's. @throws NotTaken"""
    tree, name = read(lab.root / path), path.rpartition("/")[2]
    mark = hashlib.sha256(text.encode()).hexdigest()  # no text can hold its own
    for (begin, end), (first, last) in sorted(taken(lab, path, text), reverse=True):
        line, back = text.count("\n", 0, first) + 1, tree.count("\n", 0, end) + 1
        piece = f'\n#pragma begin_{mark}\n#line {line} "{name}"\n{text[first:last]}\n#pragma end_{mark}\n#line {back} "{path}"\n'
        tree = tree[:begin] + piece + tree[end:]
    return tree


def demand_closed(text, preprocessed, name):
    """@param text what merged() has made
    @param preprocessed what the compiler makes of a source that includes it
    @throws NotTaken if a piece closes other braces than it has opened: then more was taken than a body"""
    mark = re.search(r"#pragma begin_([0-9a-f]{64})\n", text)
    begin = preprocessed.find(f"#pragma begin_{mark[1]}\n") if mark else -1
    if begin < 0:  # nothing was taken, or this source does not include it
        return
    depth = None  # in a piece
    for _, token, _ in each_token(preprocessed[begin:]):
        if token == f"begin_{mark[1]}" and depth is None:
            depth = 0
        elif token == f"end_{mark[1]}" and depth == 0:
            depth = None
        elif depth is not None:
            depth += DEEPER.get(token, 0)
            if depth < 0:
                break
    if depth is not None:
        raise NotTaken(f"{name}: what is taken closes a brace that it has not opened, or opens one that it does not close")


def look_at(lab, path, text):
    """Lines of what is taken with a word that no lab needs, for a person: "file, line 7: word: the line". @throws NotTaken"""
    ours, lines = {line.strip() for line in read(lab.root / path).split("\n")}, text.split("\n")
    name, found = path.rpartition("/")[2], {}
    for _, (begin, end) in sorted(taken(lab, path, text)):
        number, counted = text.count("\n", 0, begin), 0
        for kind, token, at in each_token(text[begin:end]):
            if not needs_a_look(kind, token) or path.endswith(".cu") and CUDA.fullmatch(token):
                continue
            number, counted = number + text.count("\n", begin + counted, begin + at), at
            if (line := lines[number].strip()) not in ours:
                found.setdefault(number, f"{name}, line {number + 1}: {token[:LONGEST]}: {line[:LONGEST]}")
    listed = list(found.values())
    return listed if len(listed) <= MOST else [*listed[:MOST], f"{name}: and {len(listed) - MOST} lines more"]


def needs_a_look(kind, token):
    if kind == "literal":
        return WORDS.search(token)
    return token in SIGNS if kind == "sign" else kind == "name" and NAMES.fullmatch(token)


def runs(text):
    """How often each run of RUN tokens stands in it. All names of variables are alike: another name changes nothing."""
    words = ["", *(token for _, token, _ in each_token(text)), ""]
    shapes = []
    for before, token, after in zip(words, words[1:], words[2:]):
        own = re.fullmatch(r"[A-Za-z_]\w*", token) and before not in (".", ">", "::") and after not in ("(", "::")
        shapes.append("name" if own else token)
    return Counter(zip(*(shapes[i:] for i in range(RUN))))


def likeness(lab, texts):
    """The share of what is taken that the tree's bodies have, too, from 0 to 1. None of an extension, whose
    answer is not in the tree. @param texts {path: what a student's file says}. @throws NotTaken"""
    if lab.is_extension:
        return None
    same = size = 0
    for path, text in texts.items():
        tree = read(lab.root / path)
        for (begin, end), (first, last) in taken(lab, path, text):
            ours, theirs = runs(tree[begin:end]), runs(text[first:last])
            same += 2 * (ours & theirs).total()
            size += ours.total() + theirs.total()
    return same / max(1, size)


def left_out(lab, path, mine):
    """What the grader would say of the file `mine`, or not take: sentences, for those who work on it."""
    tree, name = read(lab.root / path), path.rpartition("/")[2]
    try:
        text = read(mine)
        spans = holes(lab, path)
        theirs = outside(text, found_in(text, tree, spans, name))
        ours = [token for token, _ in outside(tree, spans)]
    except NotTaken as fault:
        return [str(fault)]
    other = encoding(mine)
    at = next((i for i, (token, _) in enumerate(theirs) if i >= len(ours) or token != ours[i]), None)
    if at is None:
        return other
    return [*other, f"{name}, line {text.count(chr(10), 0, theirs[at][1]) + 1}: stands outside of the bodies and is not taken"]


def outside(text, spans):
    """[(token, begin)] of what the grader takes from the tree."""
    spans = [*spans, *filter(None, [within(text, BEGIN, END)])]
    return [(token, at) for _, token, at in tokens(text) if not any(begin <= at < end for begin, end in spans)]
