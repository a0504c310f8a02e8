#!/usr/bin/env python3
"""docs/glossary.md says what the words of the tree mean: each once, and none that nobody uses.

A type that a header of kernels/ or common/ shows to others is in it, or has a comment of its own:
lines of /// above it, or a file whose first comment begins with the type's name.
"""

import re

from house import all_files, code_files, tell

GLOSSARY = "docs/glossary.md"
TERM = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)
# At the margin, where clang-format leaves what stands in a namespace; no declaration, no
# specialisation, and nothing between braces. The line above comes first.
TYPE = re.compile(r"^(.*)\n(?:template <.*>\n)?(?:struct|class|enum class|union) (?:\[\[.*?\]\] |alignas\(.*?\) )*"
                  r"(\w+)(?! ?<)\b[^;{]*\{", re.MULTILINE)
STAND_INS = "/on_cpu/"  # for headers of CUDA, whose names they have
TEXT = {".md", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".txt"}


def words(root):
    """The words of the glossary: "dp, tp, pp" is three, and "`Arena`" has no backquotes."""
    terms = TERM.findall((root / GLOSSARY).read_text(encoding="utf-8"))
    return [word.strip().strip("`") for term in terms for word in term.split(",")]


def is_said(word, text):
    """Whether a word of small letters is in the text, as text or as a name: micro-batch, micro batches,
    micro_batch, MicroBatch. The text is of small letters: a pattern that begins with one of them is
    found much faster than one that looks behind it, or at both cases."""
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", word)]
    found = re.finditer(r"[\s_/-]*".join(parts) + r"(?:s|es)?(?![^\W_])", text)
    return any(not text[max(0, match.start() - 1) : match.start()].isalnum() for match in found)


def check_words(root, known):
    files = [path for path in all_files(root) if path.suffix in TEXT and path != root / GLOSSARY]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files).lower()
    lower = [word.lower() for word in known]
    return ([f"{GLOSSARY}: {word} stands there twice" for word in sorted(set(lower)) if lower.count(word) > 1] +
            [f"{GLOSSARY}: nobody says {word}" for word in known if not is_said(word.lower(), text)])


def check_types(root, known):
    faults = []
    for path in code_files(root):
        where = str(path.relative_to(root))
        if where.startswith(("kernels/", "common/")) and STAND_INS not in where and path.suffix in {".h", ".cuh"}:
            text = path.read_text(encoding="utf-8")
            faults += [f"{where}: {name} is not in the glossary, and has no ///" for above, name in TYPE.findall(text)
                       if name not in known and not above.startswith("///") and not re.match(rf"// {name}\b", text)]
    return faults


def check(root):
    known = words(root)
    return check_words(root, known) + check_types(root, known)


if __name__ == "__main__":
    tell(check)
