#!/usr/bin/env bash
# The same bits whatever compiles the program: builds chapter 04 in several ways, runs each on the
# CPU with both tables, and compares losses and weights of every step.
#
#   scripts/one_hash.sh TEXT [FOLDER]     builds lie in FOLDER, by default build/one_hash
#
# Ways that this machine lacks the compiler or the instructions for are said and left out.
set -euo pipefail

(($# == 1 || $# == 2)) || { echo "usage: one_hash.sh TEXT [FOLDER]" >&2; exit 2; }
text=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
folder=$(realpath -m "${2:-$root/build/one_hash}")
[[ -f $text ]] || { echo "one_hash.sh: no file '$text'" >&2; exit 2; }

# name: compiler, optimisation, -march, what else
ways=(
  "gcc_O3:g++ -O3 native"
  "gcc_O1:g++ -O1 native"
  "gcc_avx2:g++ -O3 x86-64-v3"
  "clang_O3:clang++-16 -O3 native"
  "clang_O1_avx2:clang++-16 -O1 x86-64-v3"
)

# Without precompiled headers: with them GCC 12 takes all memory at -O1.
build() { # name compiler optimisation march
  cmake -S "$root" -B "$folder/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$2" \
    -DCMAKE_CXX_FLAGS_RELEASE="$3" -DLADDER_MARCH="$4" -DLADDER_CUDA=OFF \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DLADDER_BENCH=OFF -DLADDER_ONLY_CHAPTERS='^04' -DBUILD_TESTING=OFF >"$folder/$1.log" 2>&1 &&
    cmake --build "$folder/$1" --target ch04_clipping >>"$folder/$1.log" 2>&1
}

# Sequences of 256 tokens: their sums have several leaves.
run() { # name backend
  "$folder/$1/bin/ch04_clipping" --data "$text" --model small --layers 1 --channels 32 --heads 2 \
    --batch 4 --micro-batch 2 --steps 5 --threads 1 --backend "$2" --quiet \
    --trace "$folder/$1.$2.trace"
}

mkdir -p "$folder"
declare -A expected
failed=0
for way in "${ways[@]}"; do
  name=${way%%:*}
  read -r compiler optimisation march <<<"${way#*:}"
  if ! command -v "$compiler" >/dev/null; then
    echo "$name: skipped, no $compiler"
    continue
  fi
  if ! build "$name" "$compiler" "$optimisation" "$march"; then
    echo "$name: does not build, see $folder/$name.log"
    failed=1
    continue
  fi
  for backend in ref cpu; do
    run "$name" "$backend"
    hash=$(sha256sum <"$folder/$name.$backend.trace" | cut -c1-16)
    echo "$name, $backend: $hash"
    [[ ${expected[$backend]:=$hash} == "$hash" ]] || failed=1
  done
done
if ((failed)); then
  echo "not the same everywhere" >&2
  exit 1
fi
echo "one hash for each table"
