"""What the grader takes of a student's file: the bodies of the lab's functions, and what stands between
the marks of "yours", where the lab's file has them. It puts them into the tree's file. So a student
can neither make the compiler read another file nor change the meaning of a word of the check.

Tokens are cut as the compiler cuts them. That is simple, because what makes it hard is refused.
"""

import re

from .labs import holes

TOKEN = re.compile(
    r"""(?P<space>[ \t\n\r]+|//[^\n]*|/\*.*?\*/)
    |(?P<raw>(?:u8|[uUL])?R")
    |(?P<literal>(?:u8|[uUL])?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<number>\.?[0-9](?:[eEpP][+-]|'?[A-Za-z0-9_]|\.)*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>%:|<%|%>|<:(?!:[^:>])|:>|::|/\*|.)""",
    re.VERBOSE | re.DOTALL,
)
SIGNS = {"#", "%:", "<%", "%>", "<:", ":>", "$", "\\", "/*", '"', "'"}
# The implementation's own, asm and _Pragma among them, and macros of libraries that hide these.
NAMES = re.compile(r"asm|(?!__func__$)(?:__|_[A-Z]|FMT_|HWY_|JSON_|NLOHMANN_).*")
ANYWHERE = {
    r"\\[ \t]*\n": "a line that goes on in the next",
    r"\?\?[=/'()!<>-]": "a trigraph",
    r"[^\t\n -~\x80-\U0010ffff]": "a control character",
}
BEGIN, END = "// yours: members and functions that you add\n", "// end of yours\n"


class NotTaken(Exception):
    """Why nothing of a file is taken: one sentence."""


def tokens(text):
    """[(kind, token, begin)] without spaces and comments."""
    return [(found.lastgroup, found[0], found.start()) for found in TOKEN.finditer(text) if found.lastgroup != "space"]


def forbidden(kind, token, before):
    """What a token is called, if no body may hold it."""
    if kind == "sign" and (token in SIGNS or not token.isascii()):
        return token
    if kind == "raw":
        return "a raw string"
    if token == before == "[":
        return "an attribute, [[,"
    return token if kind == "name" and NAMES.fullmatch(token) else None


def refuse(body, where, line):
    """@param body from its brace to its brace
    @param line where it begins
    @throws NotTaken if the compiler might see more in it than a body"""

    def fault(what, at):
        return NotTaken(f"{where}, line {line + body.count(chr(10), 0, at)}: {what}")

    for pattern, what in ANYWHERE.items():
        if found := re.search(pattern, body):
            raise fault(f"{what} may not stand in a body", found.start())
    before, depth = "", 0
    for kind, token, at in tokens(body):
        if what := forbidden(kind, token, before):
            raise fault(f"{what} may not stand in a body", at)
        depth += (token == "{") - (token == "}")
        if depth == 0 and at < len(body) - 1:
            raise fault("this } closes more than was opened", at)
        before = token
    if depth:
        raise fault("nothing closes a {", len(body))


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
        depth += (words[i] == "{") - (words[i] == "}")
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


def read(path):
    """@throws NotTaken"""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise NotTaken(f"{path.name}: is not UTF-8") from None


def merged(lab, path, text):
    """The tree's file with what is taken of a student's. @throws NotTaken"""
    tree, text, name = read(lab.root / path), text.replace("\r\n", "\n"), path.rpartition("/")[2]
    spans = holes(lab, path)
    pieces = list(zip(spans, found_in(text, tree, spans, name)))
    ours, theirs = within(tree, BEGIN, END), within(text, BEGIN, END)
    if ours and theirs:
        # In braces, so that one that closes more than was opened is seen.
        refuse(f"{{{text[slice(*theirs)]}}}", name, text.count("\n", 0, theirs[0]) + 1)
        pieces.append((ours, theirs))
    for _, (begin, end) in pieces:
        if text[begin] == "{":
            refuse(text[begin:end], name, text.count("\n", 0, begin) + 1)
    for (begin, end), (first, last) in sorted(pieces, reverse=True):
        line, back = text.count("\n", 0, first) + 1, tree.count("\n", 0, end) + 1
        piece = f'\n#line {line} "{name}"\n{text[first:last]}\n#line {back} "{path}"\n'
        tree = tree[:begin] + piece + tree[end:]
    return tree


def left_out(lab, path, mine):
    """What the grader would say of the file `mine`, or not take: sentences, for those who work on it."""
    tree, name = read(lab.root / path), path.rpartition("/")[2]
    try:
        text = read(mine).replace("\r\n", "\n")
        merged(lab, path, text)
        spans = holes(lab, path)
        theirs = outside(text, found_in(text, tree, spans, name))
        ours = [token for token, _ in outside(tree, spans)]
    except NotTaken as fault:
        return [str(fault)]
    at = next((i for i, (token, _) in enumerate(theirs) if i >= len(ours) or token != ours[i]), None)
    if at is None:
        return []
    return [f"{name}, line {text.count(chr(10), 0, theirs[at][1]) + 1}: stands outside of the bodies and is not taken"]


def outside(text, spans):
    """[(token, begin)] of what the grader takes from the tree."""
    spans = [*spans, *filter(None, [within(text, BEGIN, END)])]
    return [(token, at) for _, token, at in tokens(text) if not any(begin <= at < end for begin, end in spans)]
