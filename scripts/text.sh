#!/usr/bin/env bash
# Writes the King James Bible (public domain, 4.1 MB), as Debian's bible-kjv prints it, to a file.
#
#   scripts/text.sh runs/bible.txt
set -euo pipefail

want=b5c4940bcfeee072c0935b5200d0f9d88a00a0199cb0961d16133458fcdfae5d
fail() {
  echo "text.sh: $*" >&2
  exit 2
}
is_right() { echo "$want  $1" | sha256sum --check --status 2>/dev/null; }

(($# == 1)) || fail "usage: scripts/text.sh OUT"
out=$1
[[ ! -d "$out" && "$out" != */ ]] || fail "$out is a folder; give the name of a file"
if [[ -f "$out" ]] && is_right "$out"; then exit 0; fi
command -v bible >/dev/null || fail "no program 'bible'; scripts/setup.sh installs it (bible-kjv)"

mkdir -p "$(dirname "$out")" 2>/dev/null || fail "cannot make the folder of $out"
new="$out.new.$$"
trap 'rm -f "$new"' EXIT
bible -f 'ge1:1' </dev/null >/dev/null 2>&1 || fail "the program 'bible' (package bible-kjv) does not run"
# The verse's address at the start of each line ("Ge1:1 ") goes; the verse stays.
{ bible -f 'ge1:1-re22:21' </dev/null | LC_ALL=C sed -E 's/^[0-9A-Za-z]+:[0-9]+ //' >"$new"; } \
  2>/dev/null || fail "cannot write $out"
is_right "$new" || fail "bible-kjv printed another text than expected (sha256 differs)"
mv "$new" "$out"
echo "text: $out, $(stat --format=%s "$out") bytes"
