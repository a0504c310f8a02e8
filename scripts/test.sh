#!/usr/bin/env bash
# Sets the machine up, builds, and runs tests. The last lines name the tests that failed and count
# all of them. If only one or two of a preset fail, and they start mpirun (label mpi), they run again,
# alone: a launcher on a busy machine may fail a test that is right. If all of them pass then, they
# count as passed, and the last lines name them as unstable.
#
#   scripts/test.sh               the promises of the trunk, chapters 01 to 13, in a release build:
#                                 gradients, same bits, and bytes as predicted. On two quiet cores
#                                 some four minutes. Equal bits are shown once, on the cpu kernels, not
#                                 again on ref and with a tied head. Branches and negative controls are
#                                 left to --all
#   scripts/test.sh --all         the tests of cpu and cuda-on-cpu, in one build, and Clang 16 over
#                                 kernels, common and chapters, without making code; debug (ASan,
#                                 UBSan), tsan (ThreadSanitizer), and cuda where there is a toolkit. Of debug
#                                 only chapters that have the code of others, too, and no tests of
#                                 memory; no CUDA kernels in debug and tsan; of cuda only code for
#                                 one kind of GPU. The rest is for nightly.sh
#   scripts/test.sh cpu debug     these presets, of all chapters
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

presets=("$@")
declare -A flags=() # of a preset, for cmake
if (($# == 0)); then
  presets=(trunk)
elif [[ $* == --all ]]; then
  # Of what cuda-on-cpu builds, only its kernels and tests are not in cpu, too.
  presets=(cpu debug tsan)
  flags[cpu]=-DLADDER_CUDA_ON_CPU=ON
  flags[debug]='-DLADDER_CUDA_ON_CPU=OFF -DLADDER_ONLY_TESTS=unit;grad;threads'
  flags[debug]+=' -DLADDER_ONLY_CHAPTERS=^(0[17]|1[0238]|2[02579]|3[04])'
  flags[tsan]=-DLADDER_CUDA_ON_CPU=OFF
  flags[cuda]=-DCMAKE_CUDA_ARCHITECTURES=90
  # cmake/cuda.cmake looks for nvcc in the same places.
  for nvcc in nvcc "${CUDA_PATH-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    command -v "$nvcc" >/dev/null && presets+=(cuda) && break
  done
fi
for preset in "${presets[@]}"; do
  if ! grep -q "\"name\": \"$preset\", \"configurePreset\"" CMakePresets.json; then
    echo "test.sh: unknown preset '$preset'; legal: --all, or some of trunk cpu cuda-on-cpu debug tsan cuda" >&2
    exit 2
  fi
done

bash scripts/setup.sh || exit 1
jobs=$(nproc)
# What two presets compile alike, ccache compiles once: paths are told from the tree's root.
export CCACHE_BASEDIR=$PWD
passed=0 failed=0
summary=()
told='' # by tests that failed

# ThreadSanitizer wants its shadow memory where address randomisation may have put a library.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    setarch "$(uname -m)" -R "$@"
  else
    "$@"
  fi
}

# A number at the head of ctest's JUnit file: count failures build/cpu/junit.xml.
count() { sed -nE "/<testsuite/,/>/s/.*\b$1=\"([0-9]+)\".*/\1/p" "$2" | head -n 1; }

# The end of what failed tests printed. ctest's own lines on it stand far above the summary.
failures() {
  python3 - "$1" <<'END'
import sys, xml.etree.ElementTree as xml
for test in xml.parse(sys.argv[1]).iter("testcase"):
    if test.get("status") == "fail":
        print("--", test.get("name"))
        print(*(test.findtext("system-out") or "").splitlines()[-40:], sep="\n")
END
}

# Configures, builds and tests one preset; adds to passed, failed and summary.
run_preset() {
  local preset=$1 own=() run=() start=$SECONDS
  read -ra own <<<"${flags[$preset]-}"
  [[ $preset == tsan ]] && run=(fixed_addresses)

  echo "== $preset: build"
  if ! cmake --preset "$preset" "${own[@]}" ||
    ! "${run[@]}" cmake --build --preset "$preset" -j "$jobs"; then
    summary+=("$preset: does not build")
    ((failed += 1))
    return
  fi

  echo "== $preset: test"
  local junit=$PWD/build/$preset/junit.xml status=0
  local names=build/$preset/Testing/Temporary/LastTestsFailed.log # by ctest: number:name
  rm -f "$junit" "$names"
  # One more than cores: ranks that wait for others, and files, leave some idle.
  "${run[@]}" ctest --preset "$preset" --parallel $((jobs + 1)) --no-tests=error \
    --output-junit "$junit" || status=1
  if [[ ! -f $junit ]]; then
    summary+=("$preset: ctest did not run")
    ((failed += 1))
    return
  fi
  local total bad skipped
  total=$(count tests "$junit") bad=$(count failures "$junit")
  skipped=$(($(count skipped "$junit") + $(count disabled "$junit")))
  # What ctest calls a failure must be in the count, whatever it is.
  ((status != 0 && bad == 0)) && bad=1
  local kind=failed failed_tests=''
  [[ -f $names ]] && failed_tests=$(<"$names")
  if [[ -n $failed_tests ]]; then
    told+=$(failures "$junit")$'\n'
    # Not --rerun-failed, which does not look at labels.
    local named again
    named=$(sed 's/^[0-9]*://' <<<"$failed_tests" | paste -sd '|')
    again=(ctest --preset "$preset" -R "^($named)\$" -L '^mpi$' --no-tests=error)
    if ((bad <= 2)) && "${again[@]}" -N | grep -q "^Total Tests: $bad\$"; then
      echo "== $preset: the same alone"
      "${run[@]}" "${again[@]}" && kind=unstable bad=0
    fi
  fi
  local good=$((total - bad - skipped)) seconds=$((SECONDS - start))
  ((passed += good, failed += bad))
  summary+=("$preset: $good passed, $bad failed, $skipped skipped, $seconds s")
  [[ -n $failed_tests ]] && summary+=("$(sed "s/^[0-9]*:/$preset: $kind: /" <<<"$failed_tests")")
}

for preset in "${presets[@]}"; do run_preset "$preset"; done

[[ -n $told ]] && printf '\n== what failed\n%s' "$told"
echo
echo "== summary"
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
