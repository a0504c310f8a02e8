#!/usr/bin/env bash
# Everything that takes a GPU, on a machine with one and, perhaps, no network: builds what it needs
# for that GPU, runs the tests of label cuda, the sanitizers of CUDA, a short run of each chapter
# beside the CPU, ranks that share the GPU, and the benchmarks. Writes docs/results/<device>.md after
# each part, and a copy of it and of all logs to $OUT if that is set. Within ten minutes; LIMIT names
# another number of seconds.
#
#   scripts/gpu_check.sh              with the libraries of the system (scripts/setup.sh)
#   scripts/gpu_check.sh --deps DIR   with those that scripts/bundle_deps.sh gathered in DIR
#
# A part that fails or overruns its time is recorded, and the rest goes on; so is one that this
# machine has no means for, such as mpirun. Status 0 if all tests passed; 2 if there is nothing to
# test on. Where a copy of the tree has no git, COMMIT names the commit for the results.
set -uo pipefail
# Parts run in shells of their own, for `timeout`; they get what is defined here.
set -o allexport

build=build/cuda
backend=cuda
logs=runs/gpu_check # what each part printed
data=runs/bible.txt
total=${LIMIT:-585} # seconds for everything
parts=()            # a row of the table for each part
failed=0            # tests that did not pass; of benchmarks it is only written down
not_here=77         # what a part returns that this machine has no means for; its last line says why

fail() {
  echo "gpu_check.sh: $*" >&2
  exit 2
}

# ---- the parts ----

# Warnings of another compiler than CI's are no matter here.
configure() {
  cmake --preset cuda -B "$build" -DCMAKE_CUDA_ARCHITECTURES=native \
    -DCMAKE_CXX_FLAGS=-w -DCMAKE_CUDA_FLAGS=-w
}

# Test programs with label cuda, also those under mpirun, the chapters and the benchmark of
# operations, as far as CMake knows them.
targets() {
  {
    grep -rhoP --include=CMakeLists.txt '^ *ladder_test\(\K\w+(?= LABEL cuda )' tests
    sed -nE 's/^([0-9]{2}_\w+) .*/ch\1/p' scripts/chapters.txt
    printf '%s\n' comm_nccl_tests bench_cuda
  } | grep -xFf <(ninja -C "$build" -t targets all | sed 's/:.*//')
}

compile() {
  local wanted
  mapfile -t wanted < <(targets)
  cmake --build "$build" --parallel "$(nproc)" --target "${wanted[@]}"
}

tests() {
  ctest --test-dir "$build" --label-regex '^cuda$' --exclude-regex '^Nccl' --parallel 8 \
    --no-tests=error --output-on-failure
}

# sanitizer TOOL ARGUMENT...: the kernel tests under compute-sanitizer; status 9 if it finds an
# error. It looks at our kernels, not at cuBLASLt's.
sanitizer() {
  compute-sanitizer --tool "$1" --kernel-regex kns=ladder --error-exitcode 9 \
    "$build/tests/kernels_cuda" --gtest_brief=1 "${@:2}"
}

# sanitize TOOL: all of them, in four shares side by side. First a small test: the tool may be
# missing, and a machine that lends its GPU may not let it at the device.
sanitize() {
  local share status=0 shares=()
  sanitizer "$1" --gtest_filter=Elementwise.AddInPlace || status=$?
  if ((status != 0 && status != 9)); then
    echo "compute-sanitizer is not available here, status $status"
    return "$not_here"
  fi
  status=0
  for share in 0 1 2 3; do
    GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$share sanitizer "$1" &
    shares+=($!)
  done
  for share in "${shares[@]}"; do wait "$share" || status=1; done
  return "$status"
}

training() {
  python3 scripts/gpu_training.py --data "$data" --bin "$build/bin" --backend "$backend"
}

# ranks threads|nccl: several on the one GPU.
ranks() {
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    bash scripts/gpu_ranks.sh "$data" "$build/bin" "$backend" "$1"
}

nccl_tests() {
  if ! [[ -x $build/tests/comm_nccl_tests ]]; then
    echo "no MPI or no NCCL where it was built"
    return "$not_here"
  fi
  ctest --test-dir "$build" --tests-regex '^Nccl' --output-on-failure
}

operations() { "$build/bin/bench_cuda" --benchmark_min_time=0.02; }

# step SECONDS
step() {
  python3 bench/peers/gpu_step.py --program "$build/bin/ch05_mixed_precision" \
    --backend "$backend" --weights fp32 --limit "$(($1 / 2))"
}

# ---- what runs them ----

left() { echo $((total - SECONDS)); }

# part NAME SECONDS COMMAND...: its output goes to $logs/NAME.log. Status of the command.
part() {
  local name=$1 limit=$2 start=$SECONDS status verdict
  shift 2
  (($(left) < limit)) && limit=$(left)
  ((limit > 0)) || limit=1
  echo "== $name"
  # shellcheck disable=SC2016  # the inner shell is to read these
  timeout --kill-after=5 "$limit" bash -c '"$@"' - "$@" >"$logs/$name.log" 2>&1
  status=$?
  case $status in
    0) verdict=passed ;;
    124 | 137) verdict="overran $limit s" ;;
    "$not_here") verdict="not run: $(tail -n 1 "$logs/$name.log")" ;;
    *) verdict="failed, status $status" ;;
  esac
  parts+=("| $name | $verdict | $((SECONDS - start)) |")
  echo "$name: $verdict"
  ((status == 0 || status == not_here)) || tail -n 20 "$logs/$name.log"
  save
  return "$status"
}

# must ...: a part that has to pass, where it can run.
must() {
  local status=0
  part "$@" || status=$?
  ((status == 0 || status == not_here)) || ((failed += 1))
  return "$status"
}

all_parts() {
  must configure 60 configure || return
  must build 240 compile || return
  must tests 60 tests
  must memcheck 60 sanitize memcheck
  must racecheck 60 sanitize racecheck
  must training 60 training
  must ranks 90 ranks threads
  must nccl 60 ranks nccl
  must nccl_tests 60 nccl_tests
  part operations 40 operations
  part step "$(left)" step "$(left)"
}

# section TITLE NAME: what a part printed, if it ran. As Markdown, or as it is.
section() {
  local log=$logs/$2.log mark=${3-}
  [[ -s $log ]] || return
  printf '\n## %s\n\n' "$1"
  [[ $mark ]] && echo "$mark"
  cat "$log"
  [[ $mark ]] && echo "$mark"
}

# The results so far: a run may be ended from outside before the last part.
save() {
  results >"$file"
  [[ -z ${OUT-} ]] || cp -r "$file" "$logs" "$OUT/"
}

# The file of results.
results() {
  local commit=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
  local system
  system=$(sed -nE 's/^PRETTY_NAME="?([^"]*)"?/\1/p' /etc/os-release)
  echo "# $device"
  echo
  echo "$(date --utc +%Y-%m-%d), commit $commit. Driver and memory: $driver. Toolkit:" \
    "$(nvcc --version | grep -oE 'release [0-9.]+, V[0-9.]+'). Host: $(nproc) cores, $system," \
    "$(c++ --version | head -n 1). \`$called\` wrote this; its commands are at the end."
  [[ $missing ]] && printf '\nMissing there: %s.\n' "$missing"
  printf '\n## Parts\n\n| part | verdict | seconds |\n|---|---|---|\n'
  printf '%s\n' "${parts[@]}"
  [[ -f $logs/tests.log ]] && printf '\n%s.\n' "$(grep 'tests passed' "$logs/tests.log")"
  section 'Short runs beside the CPU' training
  section 'Ranks that share the GPU' ranks
  section 'Ranks that share the GPU, by NCCL' nccl
  section 'A training step' step
  section 'Operations' operations '```'
  printf '\n## Commands\n\n```sh\n'
  declare -f configure targets compile tests sanitizer sanitize training ranks nccl_tests \
    operations step
  printf '```\n'
}

# Programs of these that are not on PATH, one a line.
absent() {
  local program
  for program in "$@"; do command -v "$program" >/dev/null || echo "$program"; done
}

# Ends at once where the build would fail for want of something; notes what else is missing.
look_around() {
  local needed
  needed=$(absent nvcc cmake ninja c++ python3)
  [[ $needed == *nvcc* ]] || nvcc -E -x cu - <<<'#include <cublasLt.h>' >/dev/null 2>&1 ||
    needed+=$'\n'cublasLt.h
  needed=$(xargs <<<"$needed")
  missing=$(absent mpirun compute-sanitizer | xargs)
  [[ -z $missing ]] || echo "missing here, and done without: $missing"
  [[ -z $needed ]] || fail "missing here, on PATH and in /usr/local/cuda: $needed"
}

main() {
  local deps='' device driver file missing called
  if [[ ${1-} == --deps && $# == 2 ]]; then
    [[ -f $2/env.sh ]] || fail "$2 is no folder of scripts/bundle_deps.sh: it has no env.sh"
    deps=$(cd "$2" && pwd)
    # shellcheck source=/dev/null
    . "$deps/env.sh"
    data=$deps/bible.txt
  elif (($#)); then
    fail "usage: scripts/gpu_check.sh [--deps DIR]"
  fi
  called="scripts/gpu_check.sh${deps:+ --deps DIR}"
  PATH=$PATH:${CUDA_PATH-/usr/local/cuda}/bin:/usr/local/cuda/bin
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader --id=0 2>/dev/null)
  [[ $device ]] || fail "no GPU here: nvidia-smi finds none"
  driver=$(nvidia-smi --query-gpu=driver_version,memory.total --format=csv,noheader --id=0)
  look_around

  cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
  [[ $deps ]] || bash scripts/text.sh "$data" || exit 2
  mkdir -p "$logs"
  rm -f "$logs"/*.log
  file=docs/results/$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -cs 'a-z0-9\n' -).md
  all_parts
  echo "results: $file"
  ((failed == 0))
}

# Sourced, it only defines its parts.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
