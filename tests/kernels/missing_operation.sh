#!/bin/sh
# A table that lacks an operation must not compile, and the compiler must say which one.
# usage: missing_operation.sh ROOT COMPILER FLAG...
set -eu
root=$1
shift
cut=$(mktemp -d)  # the list of operations without one of them
trap 'rm -r "$cut"' EXIT
mkdir "$cut/kernels"
sed '/(scale,/d' "$root/kernels/operations.inc" >"$cut/kernels/operations.inc"
for table in ref/table.cpp cpu/table.cpp cuda/table.cu; do
  compile() { "$@" -fsyntax-only -DLADDER_CUDA=cuda "-I$root" -x c++ "$root/kernels/$table" 2>&1; }
  compile "$@"  # whole, it does compile
  if message=$(compile "$@" "-I$cut"); then
    echo "kernels/$table compiles without 'scale'"
    exit 1
  fi
  echo "$message" | grep -E "missing.*scale"
done
