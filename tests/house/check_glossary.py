#!/usr/bin/env python3
"""docs/glossary.md says what the words of the tree mean: each once, and none that nobody uses.

A type that a header of kernels/ or common/ shows to others is in it, or has a comment of its own:
lines of /// above it, or a file whose first comment begins with the type's name.
"""

import re

from check_cpp import DIRECTIVE, NAMESPACE, NOT_CODE, TOKEN
from house import all_files, code_files, tell

GLOSSARY = "docs/glossary.md"
TERM = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|union)\s+(?:\[\[.*?\]\]\s*)?(?:alignas\(.*?\)\s*)?(\w+)(?!\s*<)\b[^;]*$")
STAND_INS = "/on_cpu/"  # for headers of CUDA, whose names they have
TEXT = {".md", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".txt"}


def terms(root):
    """The words of the glossary, as it has them: "micro-batch", "`Arena`", "dp, tp, pp"."""
    path = root / GLOSSARY
    return TERM.findall(path.read_text(encoding="utf-8")) if path.is_file() else []


def words_of(term):
    """The words that stand together: "dp, tp, pp" is three."""
    return [word.strip().strip("`") for word in term.split(",")]


def pattern(word):
    """Finds a word as text and as a name: micro-batch, micro batches, micro_batch, MicroBatch."""
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", word)]
    return re.compile(r"(?<![^\W_])" + r"[\s_/-]*".join(parts) + r"(?:s|es)?(?![^\W_])", re.IGNORECASE)


def check_words(root):
    if not terms(root):
        return [f"{GLOSSARY}: missing, or without words"]
    faults, seen = [], set()
    files = [path for path in all_files(root) if path.suffix in TEXT and path != root / GLOSSARY]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for word in (word for term in terms(root) for word in words_of(term)):
        if word.lower() in seen:
            faults.append(f"{GLOSSARY}: {word} stands there twice")
        seen.add(word.lower())
        if not pattern(word).search(text):
            faults.append(f"{GLOSSARY}: nobody says {word}")
    return faults


def public_types(path):
    """(name, line) of the types at the namespace scope of a header, declarations left out."""
    text = path.read_text(encoding="utf-8")
    code = text
    for other in (NOT_CODE, DIRECTIVE):  # blank, so that everything stays in its place
        code = other.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code)
    stack, last = [], 0
    for token in TOKEN.finditer(code):
        raw = code[last : token.start()]
        begin = last + len(raw) - len(raw.lstrip())
        head = re.sub(r"^template\s*<.*?>\s*(?=struct|class|union)", "", " ".join(raw.split()))
        last = token.end()
        if token[0] == "}":
            stack = stack[:-1]
        elif token[0] == "{":
            space, found = NAMESPACE.search(head), TYPE.match(head)
            if found and not space and all(stack):
                yield found[1], text.count("\n", 0, begin)
            stack.append(space[1] if space else "")


def check_types(root):
    faults, known = [], {word for term in terms(root) for word in words_of(term)}
    for path in code_files(root):
        where = str(path.relative_to(root))
        if not where.startswith(("kernels/", "common/")) or STAND_INS in where:
            continue
        if path.suffix not in {".h", ".cuh"}:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for name, line in public_types(path):
            above = lines[line - 1].strip() if line > 0 else ""
            of_file = bool(re.match(rf"// {name}\b", lines[0]))
            if name not in known and not above.startswith("///") and not of_file:
                faults.append(f"{where}: {name} is not in the glossary, and has no ///")
    return faults


def check(root):
    return check_words(root) + check_types(root)


if __name__ == "__main__":
    tell(check)
