"""AGENTS.md of a student's folder: what an assistant that writes code may do there, and may not."""

RULES = """# Rules for an assistant in this folder

A student writes lab {number} here. A check measures the code, and a person asks the student about it.
So the work stays with the student. These rules hold until `labs/lab.py list` says that lab {number} is passed.

You may:

- explain an idea, a formula, a word of the handout (`{handout}`), C++ and its library;
- ask questions that lead a step further;
- point to pages and headers that the handout lists under "What to read";
- run `labs/lab.py check {number}` and `labs/lab.py hint {number}`, and explain what they print;
- read messages of the compiler and of the debugger, and say what they mean;
- say which small case the student could compute by hand.

You may not:

- write, complete, correct or dictate the body of a function of the lab, be it in code or in pseudocode:
{functions}
- change files of this folder;
- open what is closed:
{closed}

If you are asked for any of that, name the rule, and offer a hint or a question in its place.
"""


def closed(lab):
    """Files and pages that an assistant leaves shut."""
    yield "`labs/*/mutants/`, and the history of git"
    if lab.is_extension:  # the answer is nowhere in the tree
        return
    yield ", ".join(f"`{path}`" for path in lab.files) + f" (the student's own copies in `work/{lab.number}/` are open)"
    if lab.has_chapter:
        yield f"`chapters/{lab.chapter}/README.md` and the READMEs of later chapters: they show diffs"
    yield "whatever else the handout calls closed"


def rules(lab):
    names = [name for functions in lab.files.values() for name in functions]
    return RULES.format(
        number=lab.number,
        handout=f"labs/{lab.name}/README.md",
        functions="\n".join(f"  - `{name}`" for name in names),
        closed="\n".join(f"  - {what}" for what in closed(lab)),
    )
