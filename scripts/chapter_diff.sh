#!/usr/bin/env bash
# What a chapter's main.cpp changes in its parent's: the diff is the lesson.
#
#   scripts/chapter_diff.sh 03            print it
#   scripts/chapter_diff.sh --embed [03]  write it into the chapter's README
#   scripts/chapter_diff.sh --check [03]  fail if the README holds another
#
# Without a number: every chapter that has a parent. In the README the diff stands between the
# lines <!-- diff:begin --> and <!-- diff:end -->. Quotes of other files are written and checked with
# it (scripts/chapter_quotes.py). Whole diffs to several parents would be one long
# list of what the other parents have: there the README shows the lines that no parent has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "chapter_diff.sh: $*" >&2
  exit 2
}

# Name and parents of the chapters that exist and have a parent; all, or the one numbered $1. What
# trains nothing has no diff.
children() {
  local name parents way _
  while read -r name parents _ _ way; do
    [[ $name == \#* || $parents == - || $way == none || ! -f chapters/$name/main.cpp ]] && continue
    [[ -z $1 || $name == "$1"_* ]] && echo "$name" "$parents"
  done <scripts/chapters.txt
  return 0
}

# The diff of chapter $1 to each of its parents $2 (split by commas). The labels carry no date.
print_diff() {
  local parent from to=chapters/$1/main.cpp
  for parent in ${2//,/ }; do
    from=chapters/$parent/main.cpp
    [[ -f $from ]] || fail "$to has no parent $from"
    diff --unified --label "$from" --label "$to" "$from" "$to" || (($? == 1))
  done
}

# Of chapter $1 the lines that no parent in $2 (split by commas) has, with a + before them, each with
# three lines around it. Indentation makes no difference.
print_new() {
  local mains=()
  read -ra mains <<<"${2//,/ } $1"
  mains=("${mains[@]/#/chapters/}")
  mains=("${mains[@]/%//main.cpp}")
  local main
  for main in "${mains[@]}"; do
    [[ -f $main ]] || fail "${mains[-1]} has no parent $main"
  done
  awk '
    FNR == 1 { ++file }
    { key = $0; gsub(/^ +/, "", key) }
    file < ARGC - 1 { known[key]; next }
    /^[a-zA-Z].*[^;]$/ { where = " " $0 }
    { line[FNR] = $0; is_new[FNR] = !(key in known); place[FNR] = where }
    END {
      for (i = 1; i <= FNR; ++i) {
        near = 0
        for (j = i - 3; j <= i + 3; ++j) near = near || is_new[j]
        if (near && (i == 1 || i != last + 1)) print "@@ line " i " @@" place[i]
        if (near) { print (is_new[i] ? "+" : " ") line[i]; last = i }
      }
    }
  ' "${mains[@]}"
}

# What README.md shows of chapter $1 with the parents $2.
print_lesson() {
  if [[ $2 == *,* ]]; then print_new "$@"; else print_diff "$@"; fi
}

# README $1 with the diff $2 between its marks.
embedded() {
  awk -v diff="$2" '
    /^<!-- diff:end -->$/ { inside = 0 }
    !inside { print }
    /^<!-- diff:begin -->$/ { inside = 1; print "```diff"; print diff; print "```" }
  ' "$1"
}

mode=--print
case "${1-}" in --embed | --check) mode=$1; shift ;; esac
(($# <= 1)) || fail "usage: scripts/chapter_diff.sh [--embed|--check] [NN]"
chosen=$(children "${1-}")
[[ -n $chosen || -z ${1-} ]] || fail "no chapter '$1' with a parent"

stale=0
while read -r name parents; do
  [[ -n $name ]] || continue
  readme=chapters/$name/README.md
  if [[ $mode == --print ]]; then
    print_diff "$name" "$parents"
    continue
  fi
  [[ -f $readme ]] || fail "$readme is missing"
  [[ $(grep --count --extended-regexp '^<!-- diff:(begin|end) -->$' "$readme") == 2 ]] ||
    fail "$readme wants one line <!-- diff:begin --> and one <!-- diff:end -->"
  diff=$(print_lesson "$name" "$parents")
  new=$(embedded "$readme" "${diff//\\/\\\\}")
  [[ $new == "$(<"$readme")" ]] && continue
  if [[ $mode == --embed ]]; then
    echo "$new" >"$readme"
    echo "$readme: rewritten"
  else
    echo "$readme: stale diff; scripts/chapter_diff.sh --embed ${name%%_*} rewrites it"
    stale=1
  fi
done <<<"$chosen"
if [[ $mode != --print ]]; then
  python3 -B scripts/chapter_quotes.py "$mode" ${1+"$1"} || stale=1
fi
exit "$stale"
