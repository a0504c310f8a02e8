#!/usr/bin/env python3
"""What C++ leaves to us, since no compiler of ours complains.

One name, one definition: two types, functions or inline variables that are called alike and differ
are one for the linker, and a program that has both uses the wrong one. Files of which CMake builds
one in place of another may define the same.

A file includes the standard headers that it uses, or a file of ours that does. What another
standard header brings along differs from one compiler to the next.
"""

import functools
import re

from check_includes import CHOSEN, INCLUDE
from house import code_files, tell

# Every name that stands in one header; left out are those that many headers have, as std::move.
STANDARD = {
    "algorithm": "all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if "
    "for_each generate lower_bound max max_element min min_element minmax_element mismatch none_of "
    "nth_element remove_if replace reverse rotate shuffle sort stable_sort transform unique "
    "upper_bound",
    "array": "array",
    "atomic": "atomic atomic_flag atomic_thread_fence",
    "barrier": "barrier",
    "bit": "bit_cast bit_ceil bit_floor bit_width countr_zero endian has_single_bit popcount",
    "cctype": "isalpha isdigit isspace tolower toupper",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "ceil cos erf exp expm1 fabs floor fma frexp isfinite isinf isnan ldexp log lround "
    "nearbyint nextafter pow sin sqrt tanh",
    "condition_variable": "condition_variable condition_variable_any",
    "csignal": "raise signal",
    "cstdio": "FILE fflush fopen fprintf fputs fwrite printf puts rename snprintf",
    "cstdlib": "abort atoi exit free getenv malloc strtol system",
    "cstring": "memcmp memcpy memmove memset strcmp strerror strlen strncmp",
    "deque": "deque",
    "exception": "current_exception exception_ptr make_exception_ptr rethrow_exception terminate",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "function",
    "iostream": "cerr cin cout",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag scoped_lock",
    "new": "bad_alloc",
    "numeric": "accumulate gcd inner_product iota lcm partial_sum reduce",
    "optional": "nullopt optional",
    "queue": "queue",
    "random": "mt19937 mt19937_64 normal_distribution uniform_int_distribution",
    "regex": "regex",
    "set": "set",
    "source_location": "source_location",
    "span": "span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "stod stoi stol stoll string to_string",
    "string_view": "string_view",
    "system_error": "system_error",
    "thread": "jthread this_thread thread",
    "tuple": "make_tuple tie tuple",
    "type_traits": "conditional_t is_integral_v is_same_v is_trivially_copyable_v remove_cvref_t",
    "unordered_map": "unordered_map",
    "variant": "get_if holds_alternative variant visit",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in STANDARD.items() for name in names.split()}

NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
TOKEN = re.compile(r"[{};]")
NAMESPACE = re.compile(r"\bnamespace\s*([\w:]*)\s*$")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)")
TYPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)(?:\s+final)?\s*(?::[^()]*)?$"
)
VARIABLE = re.compile(r"\binline\b[^()=]*?\b(\w+)\s*(?:=.*)?$")
FUNCTION_NAME = re.compile(r"([\w:~]+|operator\W+)\s*$")
# The last word of a parameter, where words before it are a type: its name.
PARAMETER_NAME = re.compile(r"(?<=[\w&*>\]])(?<!\bconst)(?<!\bunsigned)\s*(?<=[\s&*>])\w+$")

DEFAULT = re.compile(r"=\s*\w*\{[^{};]*\}(?=\s*[,)])")  # of a parameter

# Sources that CMake chooses between: the files whose names begin so.
ALTERNATIVES = [
    "bench/comm_",
    "common/comm/mpi_",
    "common/comm/nccl_",
    "common/run/backend_",
    "kernels/cpu/gemm/bf16_",
    "tests/common/comm/on_",
    "tests/kernels/under_test_",
]
# What stands in for other sources in a build of its own.
STANDS_IN = "chapters/23_planner/page/alone.cpp"


def code_of(path):
    """The text without comments, strings and directives."""
    return DIRECTIVE.sub("", NOT_CODE.sub(" ", path.read_text(encoding="utf-8")))


def split(text, at):
    """Parts of a text between the characters `at` that stand outside of all brackets."""
    parts, depth = [""], 0
    for c in text:
        if c == at and depth == 0:
            parts.append("")
            continue
        depth += (c in "(<[{") - (c in ")>]}")
        parts[-1] += c
    return parts


def signature(head):
    """f(int,const T&) for "template <class T> int f(int i, const T& t = {})"; None: no function."""
    before = split(head, "(")[0] if "operator" not in head else head.partition("(")[0]
    name = FUNCTION_NAME.search(before)
    if not name or head.count("(") != head.count(")") or "=" in before.partition("operator")[0]:
        return None
    inside = split(head[len(before) + 1 :] + " ", ")")[0]
    types = [split(parameter, "=")[0].strip() for parameter in split(inside, ",")]
    return f"{name[1]}({','.join(PARAMETER_NAME.sub('', kind).strip() for kind in types)})"


def definitions(path):
    """Qualified names of the types, functions and inline variables that a file defines outside of
    unnamed namespaces; functions with the types of their parameters."""
    stack, last, text = [], 0, DEFAULT.sub("= 0", code_of(path))
    for token in TOKEN.finditer(text):
        head = " ".join(ATTRIBUTE.sub(" ", text[last : token.start()]).split())
        last = token.end()
        if token[0] == "}":
            stack = stack[:-1]
            continue
        if space := NAMESPACE.search(head):
            stack.append(space[1])  # "": an unnamed one
            continue
        name = None
        if found := VARIABLE.search(head):
            name = found[1]
        elif token[0] == "{":
            found = TYPE.search(head)
            name = found[1] if found else None if head.startswith("static ") else signature(head)
        if name and stack and all(stack):  # every scope is a named namespace
            yield "::".join([*stack, name])
        if token[0] == "{":
            stack.append("")


def is_chosen(root, path):
    return any(path.is_relative_to(root / folder) for folder in CHOSEN)


def check_definitions(root):
    places = {}
    for path in code_files(root):
        if not is_chosen(root, path) and path != root / STANDS_IN:
            for name in definitions(path):
                places.setdefault(name, set()).add(str(path.relative_to(root)))
    faults = []
    for name, files in places.items():
        chosen = any(all(file.startswith(start) for file in files) for start in ALTERNATIVES)
        if len(files) > 1 and not chosen:
            faults.append(f"{name} has {len(files)} definitions: {', '.join(sorted(files))}")
    return faults


def reached_headers(root):
    """A function that says which standard headers a file includes, by itself or through ours."""

    @functools.cache
    def headers_of(path):
        found = set()
        for bracket, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            files = [root / name, *(root / folder / name for folder in CHOSEN)]
            files = [file for file in files if file.is_file()]
            if files:
                found.update(*map(headers_of, files))
            elif bracket == "<":
                found.add(name)
        return found

    return headers_of


def check_standard_headers(root):
    faults, headers_of = [], reached_headers(root)
    for path in code_files(root):
        for name in sorted(set(re.findall(r"\bstd::(\w+)", code_of(path)))):
            header = HEADER_OF.get(name)
            if header and header not in headers_of(path):
                faults.append(f"{path.relative_to(root)}: std::{name} wants <{header}>")
    return faults


def check(root):
    return check_definitions(root) + check_standard_headers(root)


if __name__ == "__main__":
    tell(check)
