#!/bin/sh
# A table that lacks an operation must not compile, and the compiler must say which one.
# usage: missing_operation.sh TABLE.cpp COMPILER FLAG...
set -eu
table=$1
shift
"$@" -fsyntax-only "$table"  # whole, it does compile
if message=$(sed '/\.scale = /d' "$table" | "$@" -fsyntax-only -x c++ - 2>&1); then
  echo "a table without 'scale' compiles"
  exit 1
fi
echo "$message" | grep -E "missing.*scale"
