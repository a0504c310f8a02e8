#!/usr/bin/env bash
# What a chapter's main.cpp changes in its parent's: the diff is the lesson.
#
#     scripts/chapter_diff.sh 03            print it
#     scripts/chapter_diff.sh --embed [03]  write it into the chapter's README
#     scripts/chapter_diff.sh --check [03]  fail if the README holds another
#
# Without a number: every chapter that has a parent, and the pages in docs/. In the README the diff
# stands between the lines <!-- diff:begin --> and <!-- diff:end -->. Whole diffs to several parents
# would be one long list of what the other parents have: there the README shows the lines that no
# parent has. A long diff to one parent may be shown in parts, in this order:
#
#     <!-- diff of: TITLE | NAMES -->
#
# with the names of functions and types of main.cpp; "..." stands for what no other part names. A part
# with a title is folded away under it.
#
# Quotes of other files, for lines that make an idea work and stand in no diff, are written and checked
# with it. A quote stands between two marks:
#
#     <!-- quote: common/comm/chunks.h | first line ... last line -->
#     <!-- quote:end -->
#
# "first line" is a piece of exactly one line of the file; the quote ends with the next line that has
# "last line" in it. "... {}" ends it where the block that the first line opens is closed. Without any
# "..." it is one line. In docs/ a quote says the number of its line.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/chapter_diff.py" "$@"
