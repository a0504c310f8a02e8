#!/usr/bin/env python3
"""Writes what lab.py reads of the chapters: labs/ranges.json, where the functions of all labs begin
and end, found by libclang.

That ranges.json is of today's files is checked wherever it is read, by their hashes.

Wants python3-clang-16 of Debian (scripts/setup.sh).
"""

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from engine.labs import ROOT, Refused, all_labs  # noqa: E402

ARGUMENTS = ["-x", "c++", "-std=c++20", "-march=native", "-DHWY_COMPILE_ONLY_STATIC"]


def libclang():
    """clang.cindex, also where this is not Debian's own Python; None where it is not installed."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import clang.cindex

        clang.cindex.Index.create()
    except (ImportError, OSError, RuntimeError) as fault:  # no module, no library
        print(f"labs/update.py: no libclang ({type(fault).__name__}); python3-clang-16 has it", file=sys.stderr)
        return None
    finally:
        sys.path.pop()
    return clang.cindex


def functions_of(cindex, root, path):
    """{qualified name: [(begin, end) of the body, ...]} of a source."""
    unit = cindex.Index.create().parse(str(root / path), args=[*ARGUMENTS, f"-I{root}", f"-I{root}/kernels/cuda/on_cpu/include"])
    errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise Refused(f"{path}: libclang says: {errors[0].spelling}")
    kind = cindex.CursorKind
    scopes = {kind.NAMESPACE, kind.CLASS_DECL, kind.STRUCT_DECL, kind.CLASS_TEMPLATE}
    functions = {kind.FUNCTION_DECL, kind.CXX_METHOD, kind.FUNCTION_TEMPLATE, kind.CONSTRUCTOR}
    found = {}

    def walk(cursor, names):
        for child in cursor.get_children():
            try:
                what = child.kind
            except ValueError:  # newer than the module
                continue
            # Namespaces open in many files; of others only what stands in this one.
            if str(child.location.file) != str(root / path):
                continue
            if what in scopes:
                # All is in ladder, and what has no name adds none.
                inner = [] if child.spelling in ("", "ladder") or child.is_anonymous() else [child.spelling]
                walk(child, names + inner)
            elif what in functions and child.is_definition():
                # Definitions outside of their class, in a source: Collectives::ring_all_gather.
                parent = child.semantic_parent
                outer = [parent.spelling] if parent.kind in scopes - {kind.NAMESPACE} else names
                body = [c for c in child.get_children() if c._kind_id == kind.COMPOUND_STMT.value]
                name = "::".join([*outer, child.spelling.split("<")[0]])
                if body:
                    found.setdefault(name, []).append([body[0].extent.start.offset, body[0].extent.end.offset])

    walk(unit.cursor, [])
    # Of several with one name each has a name of its own: f#1, f#2, in their order.
    for name in [name for name, ranges in found.items() if len(ranges) > 1]:
        found |= {f"{name}#{i}": [one] for i, one in enumerate(found[name], 1)}
    return found


def ranges(cindex, root, labs, known):
    """What ranges.json must hold. Entries of `known`, what it holds now, are kept for files that have not changed.

    @throws Refused if a lab names a function that is not there"""
    wanted = {}
    for lab in (lab for lab in labs if not lab.is_extension):
        for path, names in lab.files.items():
            wanted.setdefault(path, {}).update({name: lab.name for name in names})
    table = {}
    for path, names in sorted(wanted.items()):
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        entry = known.get(path)
        if entry and entry["sha256"] == digest and entry["functions"].keys() == names.keys():
            table[path] = entry
            continue
        found = functions_of(cindex, root, path)
        for name, lab in names.items():
            if len(found.get(name, [])) != 1:
                raise Refused(f"labs/{lab}/lab.toml: {path} has {len(found.get(name, []))} functions {name}")
        table[path] = {
            "sha256": digest,
            "functions": {name: found[name][0] for name in sorted(names)},
        }
    return table


def main(arguments):
    if arguments:
        raise Refused(f"unknown argument {arguments[0]}; there are none")
    cindex = libclang()
    if cindex is None:
        return 2
    file = ROOT / "labs/ranges.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or a merge that left its marks
        known = {}
    file.write_text(json.dumps(ranges(cindex, ROOT, all_labs(), known), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refused:
        print(f"update.py: {refused}", file=sys.stderr)
        sys.exit(2)
