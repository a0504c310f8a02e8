#!/usr/bin/env python3
"""What C++ leaves to us, since no compiler of ours complains.

One name, one definition: two types, or two functions of headers, that are called alike and differ
are one for the linker, and a program that has both calls the wrong one.

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
TYPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)(?:\s+final)?\s*(?::[^()]*)?$"
)
FUNCTION = re.compile(r"([\w:~]+|operator\W+?)\s*(\(.*\))")


def code_of(path):
    """The text without comments, strings and directives."""
    return DIRECTIVE.sub("", NOT_CODE.sub(" ", path.read_text(encoding="utf-8")))


def definitions(path):
    """Qualified names of the types, and of a header's functions, that a file defines outside of
    unnamed namespaces; functions with their parameters."""
    stack, last, text = [], 0, code_of(path)
    for token in TOKEN.finditer(text):
        head = " ".join(text[last : token.start()].split())
        last = token.end()
        if token[0] == "}":
            stack = stack[:-1]
        if token[0] != "{":
            continue
        if space := NAMESPACE.search(head):
            stack.append(space[1])  # "": an unnamed one
            continue
        found = TYPE.search(head)
        if not found and path.suffix in {".h", ".cuh"} and not head.startswith("static "):
            found = FUNCTION.search(head)
        if found and all(stack):  # every scope is a named namespace
            yield "::".join([*stack, "".join(found.groups())])
        stack.append("")


def is_chosen(root, path):
    return any(path.is_relative_to(root / folder) for folder in CHOSEN)


def check_definitions(root):
    places = {}
    for path in code_files(root):
        if not is_chosen(root, path):
            for name in definitions(path):
                places.setdefault(name, []).append(str(path.relative_to(root)))
    return [f"{name} has {len(p)} definitions: {', '.join(p)}" for name, p in places.items() if len(p) > 1]


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
