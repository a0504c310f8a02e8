#!/usr/bin/env bash
# Writes a text to train on: the King James Bible (public domain, 4.1 MB), as Debian's bible-kjv
# prints it. Where that cannot be had, because there is no apt, or with --grammar: 0.5 MB of small
# stories that scripts/grammar_text.py makes up, the same bytes everywhere.
#
#   scripts/text.sh [--grammar] runs/bible.txt
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
want=b5c4940bcfeee072c0935b5200d0f9d88a00a0199cb0961d16133458fcdfae5d
fail() {
  echo "text.sh: $*" >&2
  exit 2
}
is_right() { echo "$want  $1" | sha256sum --check --status 2>/dev/null; }

grammar=""
if [[ ${1-} == --grammar ]]; then
  grammar=asked
  shift
fi
(($# == 1)) || fail "usage: scripts/text.sh [--grammar] OUT"
out=$1
[[ ! -d "$out" && "$out" != */ ]] || fail "$out is a folder; give the name of a file"
if [[ ! $grammar && -f "$out" ]] && is_right "$out"; then exit 0; fi
if [[ ! $grammar ]] && ! command -v bible >/dev/null; then
  command -v apt-get >/dev/null &&
    fail "no program 'bible'; scripts/setup.sh installs it (bible-kjv), and --grammar does without"
  echo "text.sh: no program 'bible' here, and no apt to install it: stories in place of the Bible" >&2
  grammar=needed
fi

mkdir -p "$(dirname "$out")" 2>/dev/null || fail "cannot make the folder of $out"
if [[ $grammar ]]; then
  python3 "$here/grammar_text.py" "$out" || exit
else
  new="$out.new.$$"
  trap 'rm -f "$new"' EXIT
  bible -f 'ge1:1' </dev/null >/dev/null 2>&1 ||
    fail "the program 'bible' (package bible-kjv) does not run"
  # The verse's address at the start of each line ("Ge1:1 ") goes; the verse stays.
  { bible -f 'ge1:1-re22:21' </dev/null | LC_ALL=C sed -E 's/^[0-9A-Za-z]+:[0-9]+ //' >"$new"; } \
    2>/dev/null || fail "cannot write $out"
  is_right "$new" || fail "bible-kjv printed another text than expected (sha256 differs)"
  mv "$new" "$out"
fi
echo "text: $out, $(wc -c <"$out") bytes"
