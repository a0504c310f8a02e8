#!/usr/bin/env bash
# Sets the machine up, builds every preset and runs its tests. The last line counts them.
#
#   scripts/test.sh               cpu, debug (ASan, UBSan) and tsan (ThreadSanitizer)
#   scripts/test.sh cpu           only these presets
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

presets=("$@")
# A preset `cuda` will join this list where nvcc is found.
((${#presets[@]})) || presets=(cpu debug tsan)
for preset in "${presets[@]}"; do
  if ! grep -q "\"name\": \"$preset\", \"configurePreset\"" CMakePresets.json; then
    echo "test.sh: unknown preset '$preset'; legal: cpu debug tsan" >&2
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

# A number at the head of ctest's JUnit file: count build/cpu/junit.xml failures.
count() { sed -nE "/<testsuite/,/>/s/.*\b$2=\"([0-9]+)\".*/\1/p" "$1" | head -n 1; }

# Configures, builds and tests one preset; adds to passed, failed and summary.
run_preset() {
  local preset=$1 run=() leave_out=nightly junit="$PWD/build/$1/junit.xml" start=$SECONDS
  [[ $preset == tsan ]] && run=(fixed_addresses)
  # A sanitizer sees every line of a program in its tests of memory; equal bits are cpu's matter.
  [[ $preset == cpu ]] || leave_out='nightly|slow|equiv'
  # Without OpenMP a program has one thread, so whole runs have nothing to show here.
  [[ $preset == tsan ]] && leave_out+='|memory'

  echo "== $preset: build"
  if ! cmake --preset "$preset" || ! "${run[@]}" cmake --build --preset "$preset" -j "$jobs"; then
    summary+=("$preset: does not build")
    ((failed += 1))
    return
  fi

  echo "== $preset: test"
  rm -f "$junit"
  "${run[@]}" ctest --preset "$preset" --parallel "$jobs" --label-exclude "$leave_out" \
    --no-tests=error --output-junit "$junit"
  local status=$?
  if [[ ! -f $junit ]]; then
    summary+=("$preset: ctest did not run")
    ((failed += 1))
    return
  fi
  local total bad skipped
  total=$(count "$junit" tests) bad=$(count "$junit" failures)
  skipped=$(($(count "$junit" skipped) + $(count "$junit" disabled)))
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
