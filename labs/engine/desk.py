"""The student's desk: the folder work/, which git does not see."""

import difflib
import json
from itertools import zip_longest
from pathlib import Path

from . import transplant
from .labs import Refused, bodies, holes, reading, replace, stub
from .rules import rules


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
        replace(self.file, json.dumps(everything, indent=1) + "\n")

    def _all(self):
        if not self.file.is_file():
            return {}
        try:
            return json.loads(self.file.read_text(encoding="utf-8"))
        except ValueError:
            raise Refused(f"{self.file} is no JSON; without it lab.py starts a new one") from None

    # The student's files.
    def start(self, lab):
        """Writes the stubs that are not there yet. Returns their paths."""
        stubs = self._stubs(lab)
        written = [path for path in stubs if not path.exists()]
        if not written:
            raise Refused(f"{next(iter(stubs))} is there already and stays as it is; reset {lab.number} --yes begins again")
        for path in written:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(stubs[path])
        for name, make in {"README.md": reading, "AGENTS.md": rules}.items():
            if not (self.of(lab) / name).exists():
                (self.of(lab) / name).write_text(make(lab), encoding="utf-8")
        return written

    def _stubs(self, lab):
        """{path: text} of all. @throws Refused"""
        return {self.of(lab) / path: stub(lab, path) for path in lab.files}

    def files(self, lab):
        """@throws Refused if one is not there"""
        found = [self.of(lab) / path for path in lab.files]
        for path in found:
            if not path.is_file():
                raise Refused(f"no file {self.show(path)}; lab.py new {lab.number} writes it")
        return found

    def reset(self, lab):
        """Puts files aside and writes stubs. Returns the paths of the old files."""
        self._stubs(lab)  # where these are refused, no file is moved
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


def pairs(lab, desk):
    """(name, the student's function or None, the chapter's) of all functions of a lab."""
    for path in lab.files:
        tree, spans = transplant.read(lab.root / path), holes(lab, path)
        try:
            mine = transplant.read(desk.of(lab) / path)
            found = transplant.found_in(mine, tree, spans, path)
        except transplant.NotTaken:
            found = [None] * len(spans)
        names = sorted(bodies(lab, path), key=bodies(lab, path).get)
        for name, theirs, ours in zip(names, spans, found):
            yield name, ours and with_first_line(mine, ours), with_first_line(tree, theirs)


def with_first_line(text, span):
    return text[text.rfind("\n", 0, span[0]) + 1 : span[1]]


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
