#!/usr/bin/env bash
# clang-tidy over kernels, common and chapters, with the checks of .clang-tidy. Says nothing and
# exits with 0 if there is nothing to say.
#
#   scripts/tidy.sh                     every source that the presets cpu and cuda-on-cpu compile
#   scripts/tidy.sh kernels/arena.cpp   only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/tidy
# Before 16, clang refuses lambdas that capture structured bindings (C++20).
if ! command -v clang-tidy-16 >/dev/null; then
  echo "tidy.sh: no clang-tidy-16 here; scripts/setup.sh --all installs it" >&2
  exit 2
fi
# Only for its list of commands. Headers that GCC has precompiled are nothing to clang: without them
# each file also has to include what it uses.
cmake --preset cpu -B "$build" -DLADDER_CUDA_ON_CPU=ON -DLADDER_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null

if (($#)); then
  sources=("$@")
  for source in "${sources[@]}"; do
    [[ -f $source ]] || { echo "tidy.sh: $source: no such file" >&2; exit 2; }
  done
else
  # Only what is compiled has a command; others would be read with flags that are made up.
  mapfile -t sources < <(grep -oE '"file": "[^"]+' "$build/compile_commands.json" |
    cut -d'"' -f4 | grep -E "^$PWD/(kernels|common|chapters)/" | sort -u)
fi
((${#sources[@]})) || { echo "tidy.sh: no sources found" >&2; exit 2; }

# clang reads omp.h where GCC keeps it, after its own headers. It does not know every flag of GCC.
gcc_headers=$(g++ -print-file-name=include)
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-16 -p "$build" --quiet \
    --extra-arg="-idirafter$gcc_headers" --extra-arg=-Wno-unknown-warning-option 2>/dev/null
