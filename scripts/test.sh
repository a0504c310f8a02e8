#!/usr/bin/env bash
# Sets the machine up, builds every preset and runs its tests. The last line counts them.
#
#   scripts/test.sh               cpu, debug (ASan, UBSan), tsan (ThreadSanitizer), and cuda where
#                                 there is a toolkit
#   scripts/test.sh cpu           only these presets
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

presets=("$@")
if ((${#presets[@]} == 0)); then
  presets=(cpu debug tsan)
  # After cpu, whose objects ccache then has: the C++ flags are the same. cmake/cuda.cmake looks for
  # nvcc in the same places.
  for nvcc in nvcc "${CUDA_PATH-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    command -v "$nvcc" >/dev/null && presets+=(cuda) && break
  done
fi
for preset in "${presets[@]}"; do
  if ! grep -q "\"name\": \"$preset\", \"configurePreset\"" CMakePresets.json; then
    echo "test.sh: unknown preset '$preset'; legal: cpu debug tsan cuda" >&2
    exit 2
  fi
done

bash scripts/setup.sh || exit 1
jobs=$(nproc)
# Tests run side by side: a waiting thread should not spin on a core that another test needs.
export OMP_WAIT_POLICY=passive
passed=0 failed=0
summary=()

# ThreadSanitizer wants its shadow memory where address randomisation may have put a library.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    setarch "$(uname -m)" -R "$@"
  else
    "$@"
  fi
}

# Sum over ctest's JUnit files of a number at their head: count failures build/cpu/junit.xml.
count() {
  local file sum=0
  for file in "${@:2}"; do
    ((sum += $(sed -nE "/<testsuite/,/>/s/.*\b$1=\"([0-9]+)\".*/\1/p" "$file" | head -n 1)))
  done
  echo "$sum"
}

# Which tests of a preset run, as flags of ctest; a line for each time that it is called.
choice_of() {
  case $1 in
    cpu) echo '--label-exclude nightly' ;;
    # A sanitizer sees every line of a program in its tests of memory; equal bits are cpu's matter.
    debug) echo '--label-exclude nightly|slow|equiv' ;;
    # What has threads: communication, and short runs of the chapters whose ranks are threads.
    tsan) echo '--label-exclude nightly|slow|equiv|memory' ;;
    # What differs from cpu: the kernels, and which backends there are.
    cuda)
      echo '--label-regex ^cuda(-kernel)?$'
      echo '--tests-regex Backend|Device --label-exclude ^cuda|equiv'
      ;;
  esac
}

# Configures, builds and tests one preset; adds to passed, failed and summary.
run_preset() {
  local preset=$1 run=() start=$SECONDS
  [[ $preset == tsan ]] && run=(fixed_addresses)

  echo "== $preset: build"
  if ! cmake --preset "$preset" || ! "${run[@]}" cmake --build --preset "$preset" -j "$jobs"; then
    summary+=("$preset: does not build")
    ((failed += 1))
    return
  fi

  echo "== $preset: test"
  local choices choice flags junit=() status=0
  mapfile -t choices < <(choice_of "$preset")
  rm -f "build/$preset"/junit*.xml
  for choice in "${choices[@]}"; do
    read -ra flags <<<"$choice"
    junit+=("$PWD/build/$preset/junit${#junit[@]}.xml")
    "${run[@]}" ctest --preset "$preset" --parallel "$jobs" "${flags[@]}" --no-tests=error \
      --output-junit "${junit[-1]}" || status=1
    if [[ ! -f ${junit[-1]} ]]; then
      summary+=("$preset: ctest did not run")
      ((failed += 1))
      return
    fi
  done
  local total bad skipped
  total=$(count tests "${junit[@]}") bad=$(count failures "${junit[@]}")
  skipped=$(($(count skipped "${junit[@]}") + $(count disabled "${junit[@]}")))
  # What ctest calls a failure must be in the count, whatever it is.
  ((status != 0 && bad == 0)) && bad=1
  local good=$((total - bad - skipped)) seconds=$((SECONDS - start))
  ((passed += good, failed += bad))
  summary+=("$preset: $good passed, $bad failed, $skipped skipped, $seconds s")
}

for preset in "${presets[@]}"; do run_preset "$preset"; done

echo
echo "== summary"
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
