#!/usr/bin/env bash
# Gives any bytes to what reads files: libFuzzer, with address and undefined-behavior checks. It
# starts from tests/fuzz/corpus; what makes a program crash or hang is written to runs/fuzz/.
#
#   scripts/fuzz.sh                    each target for a minute
#   scripts/fuzz.sh 600                for ten minutes
#   scripts/fuzz.sh 600 safetensors    one target, or several
#
# A crash that is fixed goes to the corpus, from which each run begins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1-60}
targets=(hf_config manifest safetensors tokens)
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz.sh: '$seconds'; legal are whole numbers of seconds from 1 on" >&2
  exit 2
fi
for name in "${@:2}"; do
  [[ " ${targets[*]} " == *" $name "* ]] || { echo "fuzz.sh: no target '$name'; legal: ${targets[*]}" >&2; exit 2; }
done
(($# < 2)) || targets=("${@:2}")
# The first that has std::source_location, and the runtime of its fuzzer, which is another package.
links() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$1" -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null
}
clang=
for version in 19 18 17 16; do
  command -v clang++-$version >/dev/null && links clang++-$version && clang=clang++-$version && break
done
[[ -n $clang ]] || { echo "fuzz.sh: no clang++-16 or newer with its fuzzer; apt-get install clang-16 libclang-rt-16-dev" >&2; exit 2; }

cmake -G Ninja -S . -B build/fuzz -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" \
  -DLADDER_CUDA=OFF -DLADDER_BENCH=OFF -DLADDER_ONLY_TESTS=unit -DLADDER_FUZZ=ON >/dev/null
cmake --build build/fuzz -j "$(nproc)" --target "${targets[@]/#/fuzz_}"

failed=0
for name in "${targets[@]}"; do
  mkdir -p "runs/fuzz/$name"
  # New inputs go to the first folder, crashes beside it.
  build/fuzz/tests/fuzz_"$name" "runs/fuzz/$name" "tests/fuzz/corpus/$name" \
    -artifact_prefix="runs/fuzz/$name-" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 || failed=1
done
exit $failed
