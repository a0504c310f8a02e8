#!/usr/bin/env python3
"""Doxygen's input filter: what reads well on GitHub and in an editor, said as Doxygen wants it.

Markdown: $...$, $$...$$ and ```math become Doxygen's formulas, links and images are told from the
root of the project, and a heading gets the anchor that GitHub gives it. A link to what is no page of
the site becomes plain text, and a diff has colors. Headers: the first comment, which says what the file is for, becomes the
file's documentation, and indented formulas stay as they are set.
"""

import html
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What docs/CMakeLists.txt gives to Doxygen.
PAGES = re.compile(r"(README|CONTRIBUTING|labs/README)\.md|(docs|kernels|common|chapters)/.*\.(md|h)")
LEFT_OUT = re.compile(r"kernels/(ref|cpu)/|.*/on_cpu/include/")
BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
QUOTED_LIST = re.compile(r"^> ?(?=- |  )", re.MULTILINE)  # whose first item Doxygen would not see
BOLD_CODE = re.compile(r"\*\*(`[^`\n]+`:?)\*\*")  # Doxygen would show the stars
HEADING = re.compile(r"^(##+ )(.+)$", re.MULTILINE)  # the first, of one #, names the page
MATH_BLOCK = re.compile(r"```math\n(.*)\n```", re.DOTALL)
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<![\\$])\$(?! )([^$\n]*\n?[^$\n]*[^$\s])\$(?!\d)")
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]*)(#(?P<anchor>[^)\s]+))?\)")
# A "<" that Doxygen would take for an HTML tag; code in backticks is left alone.
ANGLE = re.compile(r"(^|[^`\w:])<(?=[a-z])")

# In code Doxygen takes a "'" like this for the end of a quotation that "`" began. And it looks for the
# other of two '"', even behind the code.
QUOTE = re.compile(r"'(?!\w)")


TITLE = re.compile(r"\A# (.+)$", re.MULTILINE)
DIFF = re.compile(r" *```diff\n(.*)\n *```", re.DOTALL)
COLORS = {"+": "added", "-": "removed", "@": "place"}


def diff(text):
    """A diff whose lines have a class, from which docs/site.css makes colors."""
    lines = (f'<span class="{COLORS.get(line[:1], "context")}">{html.escape(line)}</span>' for line in text.split("\n"))
    return '\\htmlonly<pre class="diff">' + "\n".join(lines) + "</pre>\\endhtmlonly"


def formulas(text):
    text = DISPLAY.sub(r"\\f[\1\\f]", text)
    return INLINE.sub(r"\\f$\1\\f$", text)


def is_page(path):
    return PAGES.fullmatch(path) and not LEFT_OUT.match(path) and (ROOT / path).is_file()


def label(page, anchor):
    """Doxygen's name for a heading: one for the whole site."""
    return re.sub(r"\W", "_", page.removesuffix(".md")) + "-" + anchor


def headings(text, page):
    """Each heading with the anchor that GitHub makes of its words."""
    seen = {}

    def say(match):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[2]).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen[anchor] = seen.get(anchor, 0) + 1
        again = f"-{seen[anchor] - 1}" if seen[anchor] > 1 else ""
        return f"{match[0]} {{#{label(page, anchor + again)}}}"

    pieces = BLOCK.split(text)  # prose, block, prose, ...
    return "".join(piece if i % 2 else HEADING.sub(say, piece) for i, piece in enumerate(pieces))


def links(text, page):
    """Relative links of a page, told from the root of the project."""

    def say(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match["target"]))
        target = target if match["target"] else page
        if match["image"]:
            return f'<img src="{target}" alt="{match["text"]}"/>'
        if target.endswith(".html") and (ROOT / target).is_file():
            return f'<a href="{target}#{html.escape(match["anchor"] or "")}">{match["text"]}</a>'
        if not is_page(target):
            return match["text"]
        if match["anchor"]:
            return f'\\ref {label(target, match["anchor"])} "{match["text"]}"'
        if target.endswith(".h"):
            return f'\\ref {target} "{match["text"]}"'  # a plain link would stay as it is
        return f"[{match['text']}]({target})"

    return LINK.sub(say, text)


def markdown(text, page):
    if is_page(page) and page != "README.md":  # the first page has a name of its own
        text = TITLE.sub(rf"# \1 {{#{label(page, 'page')}}}", text)
    text = BOLD_CODE.sub(r"<b>\1</b>", headings(text, page))
    pieces = CODE.split(text)  # prose, code, prose, ...
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = formulas(links(QUOTED_LIST.sub("", piece), page))
        elif math := MATH_BLOCK.fullmatch(piece):
            pieces[i] = rf"\f[{math[1]}\f]"
        elif lines := DIFF.fullmatch(piece):
            pieces[i] = diff(lines[1])
        elif "\n" not in piece:
            pieces[i] = QUOTE.sub("’", piece if piece.count('"') % 2 == 0 else piece.replace('"', "”"))
    return "".join(pieces)


def comment(bodies):
    """The lines of a comment; those set in by three blanks or more become blocks of code."""
    hanging = False  # the lines of a list or of a command are set in too
    in_code = False
    for body in bodies:
        indent = len(body) - len(body.lstrip())
        if re.match(r" +[-@]", body):
            hanging = True
        elif indent < 2:
            hanging = False
        code = indent >= 3 and not hanging
        if code != in_code and body:
            yield ""
            in_code = code
        yield "    " + body if in_code else ANGLE.sub(r"\1\\<", body)


def header(text):
    """A header whose first comment documents the file."""
    out, block, mark = ["/// \\file"], [], "//"

    def flush():
        out.extend(indent + "///" + body for body in comment(block))
        block.clear()

    indent = ""
    for line in text.splitlines():
        match = re.match(rf"(\s*){mark}($|[ <].*)", line)
        if match:
            indent = match[1]
            block.append(match[2])
            continue
        flush()
        if mark == "//":  # the file's comment ends here
            out.append("")
            mark = "///"
        out.append(line)
    flush()
    return "\n".join(out) + "\n"


def main(path):
    path = Path(path).resolve()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = markdown(text, path.relative_to(ROOT).as_posix())
    else:
        text = header(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
