"""The student's desk: the folder work/, which git does not see."""

import difflib
import json
from itertools import zip_longest
from pathlib import Path

from .labs import Refused, bodies, reading, stub


class Desk:
    def __init__(self, root, folder=None):
        self.root, self.folder = root, Path(folder or root / "work")
        self.file = self.folder / "state.json"

    def of(self, lab):
        return self.folder / lab.number

    # What has been done, in one small file.
    def state(self, lab):
        return self._all().get(lab.number, {})

    def note(self, lab, **what):
        everything = self._all()
        everything.setdefault(lab.number, {}).update(what)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")

    def _all(self):
        if not self.file.is_file():
            return {}
        try:
            return json.loads(self.file.read_text(encoding="utf-8"))
        except ValueError:
            raise Refused(f"{self.file} is no JSON; without it lab.py starts a new one") from None

    # The student's files.
    def start(self, lab):
        """Writes the stubs that are not there yet; which they are."""
        stubs = {self.of(lab) / path: stub(lab, path) for path in lab.files}  # all, or none
        written = [path for path in stubs if not path.exists()]
        if not written:
            raise Refused(f"{next(iter(stubs))} is there already and stays as it is; reset {lab.number} --yes begins again")
        for path in written:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(stubs[path])
        text = self.of(lab) / "README.md"
        if not text.exists():
            text.write_text(reading(lab), encoding="utf-8")
        return written

    def files(self, lab):
        """@throws Refused if one is not there"""
        found = [self.of(lab) / path for path in lab.files]
        for path in found:
            if not path.is_file():
                raise Refused(f"no file {self.show(path)}; lab.py new {lab.number} writes it")
        return found

    def reset(self, lab):
        """Puts files aside and writes stubs; where the old ones are."""
        aside = []
        for path in self.files(lab):
            n = 1
            while (old := path.with_name(f"{path.name}.old-{n}")).exists():
                n += 1
            aside.append(path.rename(old))
        self.start(lab)
        return aside

    def show(self, path):
        path = Path(path)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def function_in(text, before):
    """The function whose text begins with `before`, up to and with its body; None if it is not
    there. Braces in strings, characters and comments do not count."""
    begin = text.find(before)
    if begin < 0:
        return None
    at, depth, quote = begin + len(before), 0, ""
    while at < len(text):
        two, one = text[at : at + 2], text[at]
        if quote:
            if one == "\\":
                at += 1
            elif one == quote:
                quote = ""
        elif two in ("//", "/*"):
            end = text.find("\n" if two == "//" else "*/", at)
            at = len(text) if end < 0 else end + (two == "/*")
        elif one in "\"'" and not (one == "'" and text[at - 1].isalnum()):
            quote = one
        elif one == "{":
            depth += 1
        elif one == "}":
            depth -= 1
            if depth == 0:
                return text[begin : at + 1]
        at += 1
    return None


def pairs(lab, desk):
    """(name, the student's function or None, the chapter's) of all functions of a lab."""
    for path in lab.files:
        source = (lab.root / path).read_bytes()
        mine = (desk.of(lab) / path).read_text(encoding="utf-8")
        for name, (begin, end) in bodies(lab, path).items():
            line = source.rfind(b"\n", 0, begin) + 1
            before = source[line:begin].decode()
            yield name, function_in(mine, before), source[line:end].decode()


def code_lines(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def side_by_side(mine, theirs, columns):
    """Equal lines stand beside each other, if `columns` are wide enough; else all of theirs below."""
    left, right = mine.splitlines(), theirs.splitlines()
    width = max(map(len, left))
    rows = []
    for _, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        rows += zip_longest(left[a:b], right[c:d], fillvalue="")
    lines = [f"  {a:{width}} | {b}".rstrip() for a, b in rows]
    if max(map(len, lines)) > columns:
        lines = [*left, "", "the chapter's:", *right]
    return "\n".join(lines)
