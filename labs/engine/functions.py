"""Where the functions of a source begin and end, by its tokens. It is enough for files that are written
as this tree's are: what stands in parentheses, in a body or behind an = is not looked at."""

import functools
import re

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<literal>(?:u8|[uUL])?(?:R"(?P<raw>[^()\\\s]{0,16})\(.*?(?:\)(?P=raw)"|\Z)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<number>\.?[0-9](?:[eEpP][+-]|'?[A-Za-z0-9_]|\.)*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>%:|<%|%>|<:(?!:[^:>])|:>|::|.)""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"(?:.*\\\n)*.*")  # for the preprocessor: a line, and those that it goes on with
PAIRS = {"(": ")", "[": "]", "{": "}"}
# In a head, whose parentheses are empty: the name of a function, and the class of which it is.
NAMED = re.compile(r"(?:(\w+) :: )?\b(?!(?:alignas|decltype|explicit|noexcept|requires|__launch_bounds__)\b)(\w+) \( \)")
SCOPE = re.compile(r"(?:template )?(?:inline )?(namespace|class|struct|union)\b(?: \[ \])*((?: (?:\w+|::))*)")


def each_token(text):
    """(kind, token, begin) without spaces and comments."""
    return ((found.lastgroup, found[0], found.start()) for found in TOKEN.finditer(text) if found.lastgroup != "space")


@functools.lru_cache(maxsize=2)  # the tree's file and a student's, which each question asks for again
def tokens(text):
    return list(each_token(text))


@functools.lru_cache(maxsize=8)
def functions_of(text):
    """{name: (begin, end)} of bodies, with their braces. In a class a function is `Class::name`, in a namespace
    below ladder `namespace::name`; several of one name are `name#1`, `name#2`, in their order."""
    cut = tokens(text)
    found, scopes, head, at = {}, [], [], 0
    while at < len(cut):
        word, begin = cut[at][1:]
        after = at + 1
        if word == "#":
            end = DIRECTIVE.match(text, begin).end()
            after = next((i for i in range(at, len(cut)) if cut[i][2] >= end), len(cut))
        elif word == ";" or word == ":" and head[-1:] in (["public"], ["private"], ["protected"]):
            head = []
        elif word == "}":
            scopes.pop()
            head = []
        elif word in PAIRS:
            kind, name = opened(" ".join(head)) if word == "{" else ("", "")
            if kind in ("namespace", "class"):
                scopes.append((kind, name))
                head = []
            else:
                after = behind(cut, at)
                head += [word, PAIRS[word]]
                if kind == "function":
                    found.setdefault(full_name(scopes, name), []).append((begin, cut[after - 1][2] + 1))
                    head = []
        else:
            head.append(word)
        at = after
    numbered = [(f"{name}#{i}" if len(spans) > 1 else name, span) for name, spans in found.items() for i, span in enumerate(spans, 1)]
    return dict(numbered)


def behind(cut, at):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(cut)):
        depth += (cut[i][1] in PAIRS) - (cut[i][1] in PAIRS.values())
        if depth == 0:
            return i + 1
    return len(cut)


def opened(head):
    """(what the brace behind this head opens, its name)"""
    while (flat := re.sub(" <[^<>]*>", "", head)) != head:  # arguments of templates
        head = flat
    before, colon, members = head.partition(" : ")
    scope, named = SCOPE.match(before), NAMED.findall(before)
    if " = " in before and "operator" not in before or colon and named and re.search(r"\w$", members):
        return "value", ""  # that of a variable, or of a member of a constructor
    if named:
        return "function", "::".join(filter(None, named[-1]))
    if scope:
        return "namespace" if scope[1] == "namespace" else "class", scope[2].replace(" ", "")
    return "value", ""


def full_name(scopes, name):
    if scopes and scopes[-1][0] == "class":
        return f"{scopes[-1][1]}::{name}"
    spaces = [part for _, scope in scopes for part in scope.split("::") if part not in ("", "ladder")]
    return name if "::" in name else "::".join([*spaces, name])
