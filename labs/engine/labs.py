"""What a lab is: its lab.toml, the files it names, and the stubs made of them."""

import functools
import posixpath
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .functions import functions_of

ROOT = Path(__file__).resolve().parents[2]
LOOP = re.compile(r"for \(int64_t (\w) = 0; \1 < \w+; \+\+\1\) ?\{?")


class Refused(Exception):
    """What the user asked for cannot be: one line, status 2."""


@dataclass
class Gate:
    name: str
    kind: str  # "bits", "count" or "trace"
    points: float
    what: str
    less_is_wrong: bool = True  # of a count: fewer means that something was lost
    with_gate: str = ""  # of a count: in each case it gets no larger share than this gate


@dataclass
class Mutant:
    name: str
    gate: str
    symptom: str
    changes: list  # of {"find", "put"}
    breaks: list = field(default_factory=list)  # sentences of the handout, quoted (musts.py)
    also: list = field(default_factory=list)  # gates behind the first that it loses points at, too
    leaves: list = field(default_factory=list)  # gates of functions of an extension that it leaves unwritten


class Lab:
    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.root = folder.parents[1]
        with (folder / "lab.toml").open("rb") as file:
            data = tomllib.load(file)
        self.number = data.get("number", folder.name.partition("_")[0])  # what it is called by
        self.title, self.minutes = data["title"], data["minutes"]
        # An extension's own file is the stub, and its answer is nowhere in the tree.
        self.is_extension = "extends" in data
        self.chapter = data.get("extends", self.name)
        self.has_chapter = (self.root / "chapters" / self.chapter).is_dir()
        self.page = data.get("page", f"chapters/{self.chapter}/README.md")  # what a student reads first
        self.notice = " ".join(data["notice"].split())
        self.files = {entry["path"]: entry["functions"] for entry in data["files"]}
        self.program = data.get("program")
        self.gates = [Gate(**gate) for gate in data["gates"]]

    @property
    def points(self):
        return sum(gate.points for gate in self.gates)

    @property
    def hints(self):
        return sorted((self.folder / "hints").glob("*.md"))

    @functools.cached_property
    def mutants(self):
        paths = sorted((self.folder / "mutants").glob("*.toml"))
        return [Mutant(path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))) for path in paths]


def all_labs(root=ROOT):
    return [Lab(path.parent) for path in sorted((root / "labs").glob("*_*/lab.toml"))]


def find(number, root=ROOT):
    """The lab of that number or name."""
    labs = all_labs(root)
    for lab in labs:
        if number in (lab.number, lab.name):
            return lab
    raise Refused(f"no lab {number}; there are {', '.join(lab.number for lab in labs)}")


def bodies(lab, path):
    """{function: (begin, end)} of a file of the lab, braces included; none of an extension. @throws Refused"""
    found = functions_of((lab.root / path).read_text(encoding="utf-8"))
    names = [] if lab.is_extension else lab.files[path]
    for name in names:
        if name not in found:
            raise Refused(f"{path} has no function {name}, which labs/{lab.name}/lab.toml names")
    return {name: found[name] for name in names}


def holes(lab, path):
    """[(begin, end)] of the bodies that a student writes, as they stand in the tree."""
    if lab.is_extension:
        source = (lab.root / path).read_text(encoding="utf-8")
        return [found.span() for found in re.finditer(r'\{\s*throw std::logic_error\("\w+ is not written yet"\);\s*\}', source)]
    return sorted(bodies(lab, path).values())


def stub(lab, path):
    """The file with the bodies of the lab's functions replaced by one throwing line."""
    source = (lab.root / path).read_text(encoding="utf-8")
    for name, (begin, end) in sorted(bodies(lab, path).items(), key=lambda item: -item[1][0]):
        # As deep as the brace that ends the function: its first line may be the last of several.
        line = source[source.rfind("\n", 0, end) + 1 : end]
        indent = line[: len(line) - len(line.lstrip())]
        source = source[:begin] + f'{{\n{indent}  throw std::logic_error("{name} is not written yet");\n{indent}}}' + source[end:]
    return source


def mutated(lab, mutant):
    """{path: text} of the files of the lab as the mutant has them."""
    texts = {path: (lab.root / path).read_text(encoding="utf-8") for path in lab.files}
    for change in mutant.changes:
        where = [path for path, text in texts.items() for _ in range(text.count(change["find"]))]
        if len(where) != 1:
            raise Refused(f"{lab.name}, mutant {mutant.name}: not once in its files: {change['find'].strip()}")
        texts[where[0]] = texts[where[0]].replace(change["find"], change["put"])
    return texts


def write(folder, texts):
    """Files of a folder. @param texts {path: text}"""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def replace(path, text):
    """Writes a file that is whole at any time: what was there stays until all of the new one is."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as fault:
        new.unlink(missing_ok=True)
        raise Refused(f"{path} cannot be written and stays as it was: {fault.strerror}") from None


def reading(lab):
    """The lab's page, mostly the chapter's README, without its diff and without what it quotes of the lab's files: they have
    what the student shall write. Links lead there from work/NN."""
    text = (lab.root / lab.page).read_text(encoding="utf-8")
    hidden = [] if lab.is_extension else [("diff:begin", "diff:end"), *(("quote: " + re.escape(path), "quote:end") for path in lab.files)]
    for begin, end in hidden:
        text = re.sub(rf"<!-- {begin}.*?<!-- {end} -->", "(Left out until you have passed: it has the answer.)", text, flags=re.DOTALL)
    folder = f"../../{posixpath.dirname(lab.page)}"
    return re.sub(r"\]\((?!https?:|#)([^\s()]+)\)", lambda link: f"]({posixpath.normpath(f'{folder}/{link[1]}')})", text)


def removed_lines(lab):
    """Lines of the bodies that tell something: no brace alone, no loop from 0 to a size, none that
    stands in the stub too or in another source of the chapter, which is open."""
    lines = set()
    folder = lab.root / "chapters" / lab.chapter
    others = [path for path in [*folder.glob("*.h"), *folder.glob("*.cpp")] if str(path.relative_to(lab.root)) not in lab.files]
    open_text = "".join(path.read_text(encoding="utf-8") for path in others)
    for path in lab.files:
        source, kept = (lab.root / path).read_text(encoding="utf-8"), stub(lab, path) + open_text
        for begin, end in bodies(lab, path).values():
            for line in source[begin + 1 : end - 1].splitlines():
                line = line.strip()
                if len(line) >= 20 and not line.startswith("//") and line not in kept and not LOOP.fullmatch(line):
                    lines.add(line)
    return lines


def leaks(lab):
    """Lines that a stub has lost and that the handout shows: faults as "where: line"."""
    shown = {"the chapter's README without its diff": reading(lab)}
    for path in [lab.folder / "README.md", *lab.hints]:
        shown[str(path.relative_to(lab.root))] = path.read_text(encoding="utf-8")
    return [f"{where}: {line}" for line in sorted(removed_lines(lab)) for where, text in shown.items() if line in text]
