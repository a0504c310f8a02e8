#!/usr/bin/env bash
# Same bits on every layout, in full: chapters 07 to 10 on 1, 2, 4 and 8 ranks, threads and
# processes, with 1, 2 and 4 micro-steps, in FP32 and BF16, on cpu and ref; and every recomputation
# in every precision. Each run's trace must be that of 06 on one rank, line by line.
#
#   scripts/nightly.sh              all of it, with the programs of build/cpu
#   scripts/nightly.sh --build DIR  with those of another build
#
# Prints a line for each run, and writes docs/results/nightly_data_parallel.md. A run that was done
# before, by the same programs, is not done again: what has been found lies in runs/nightly.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

build=build/cpu
case "${1-}" in
  "") ;;
  --build) build=${2:?"nightly.sh: --build takes a directory"} ;;
  *) echo "nightly.sh: unknown argument '$1'; legal: --build DIR" >&2; exit 2 ;;
esac
bin=$(cd "$build/bin" && pwd) || exit 2
steps=50 result=docs/results/nightly_data_parallel.md
chapters=()
for program in "$bin"/ch0[789]_* "$bin"/ch10_*; do
  [[ -x $program ]] && chapters+=("${program##*/ch}")
done
((${#chapters[@]} > 0)) || { echo "nightly.sh: no chapters from 07 to 10 in $build/bin" >&2; exit 2; }

# Root may start processes in a container; ranks may be more than cores, and then give them way.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
mpirun=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)

# What the programs are made of names the folder of what they have done.
work=runs/nightly/$(cat "$bin"/ch06_* "${chapters[@]/#/$bin/ch}" | sha256sum | cut -c 1-16)
mkdir -p "$work" || exit 1
text=$work/text.txt
[[ -s $text ]] || seq 100000 100700 >"$text"  # 4,907 bytes

# AdamW, clipping on. `ref` is the specification, not the fast one: a smaller model.
common=(--data "$text" --model nano --batch 32 --steps "$steps" --clip 1 --threads 1 --quiet)
declare -A sizes=([cpu]="" [ref]="--layers 2 --channels 32 --heads 4")

# Whether a trace has every step, with finite numbers.
whole() {
  [[ $(wc -l <"$1") == "$steps" ]] && ! grep -qE 'nan|inf' "$1"
}

declare -A good bad  # runs of each table, by chapter
total=0 failed=0 again=0
start=$SECONDS

# alone TRACE flags: what 06 does on one rank.
alone() {
  local trace=$1
  shift
  [[ -s $trace ]] && whole "$trace" && return
  "$bin/ch06_checkpointing" "${common[@]}" "$@" --trace "$trace.part" >/dev/null &&
    whole "$trace.part" && mv "$trace.part" "$trace" && return
  echo "nightly.sh: 06 does not run: $*" >&2
  exit 1
}

# check TABLE CHAPTER COMM RANKS WANTED flags: one run, against the trace WANTED.
check() {
  local table=$1 chapter=$2 comm=$3 ranks=$4 wanted=$5 command=()
  shift 5
  local name="$chapter $comm $ranks ranks $*"
  local done=$work/done/${name//[^A-Za-z0-9_-]/.} trace=$work/trace.jsonl status=0 said=""
  ((total += 1))
  if [[ -e $done ]]; then
    ((again += 1))
    said="as before"
  else
    if [[ $comm == mpi ]]; then
      command=("${mpirun[@]}" -n "$ranks" "$bin/ch$chapter")
    else
      command=("$bin/ch$chapter" --ranks "$ranks")
    fi
    rm -f "$trace"
    local began=$EPOCHREALTIME
    timeout 300 "${command[@]}" "${common[@]}" "$@" --trace "$trace" &>"$work/screen.txt"
    status=$?
    local us=$((${EPOCHREALTIME/./} - ${began/./}))
    said="$((us / 1000)) ms"
    if ((status != 0)); then
      said="exit status $status: $(tail -n 1 "$work/screen.txt")"
    elif ! cmp -s "$trace" "$wanted"; then
      status=1 said="differs: $(cmp "$trace" "$wanted" 2>&1)"
    else
      touch "$done"
    fi
  fi
  if ((status == 0)); then
    good["$table $chapter"]=$((${good["$table $chapter"]-0} + 1))
    echo "same    $name: $said"
  else
    bad["$table $chapter"]=$((${bad["$table $chapter"]-0} + 1))
    ((failed += 1))
    echo "FAILED  $name: $said"
  fi
}

mkdir -p "$work/done"
for backend in cpu ref; do
  for precision in fp32 bf16; do
    read -ra size <<<"${sizes[$backend]}"
    flags=(--backend "$backend" --precision "$precision" "${size[@]}")
    wanted=$work/06_${backend}_$precision.jsonl
    alone "$wanted" "${flags[@]}"
    for chapter in "${chapters[@]}"; do
      for ranks in 1 2 4 8; do
        for GA in 1 2 4; do
          for comm in thread mpi; do
            check layouts "$chapter" "$comm" "$ranks" "$wanted" "${flags[@]}" \
              --micro-batch $((32 / ranks / GA))
          done
        done
      done
    done
  done
done

policies=(none every:2 sqrt full selective offload)
for precision in fp32 bf16 fp16 fp8; do
  flags=(--precision "$precision" --loss-scale 1024)
  wanted=$work/06_recompute_$precision.jsonl
  alone "$wanted" "${flags[@]}"
  for policy in "${policies[@]}"; do
    for chapter in "${chapters[@]}"; do
      check recompute "$chapter" thread 4 "$wanted" "${flags[@]}" --recompute "$policy" --micro-batch 4
    done
  done
done

# A fault must be seen: of each chapter one lost sum of gradients, late in the run.
seen=0 controls=0
for chapter in "${chapters[@]}"; do
  operation=reduce_scatter
  [[ $chapter == 07_ddp ]] && operation=all_reduce
  ((controls += 1))
  fault=skip:$operation:$((steps - 1))
  rm -f "$work/fault.jsonl"
  if "$bin/ch$chapter" "${common[@]}" --ranks 4 --fault "$fault" --trace "$work/fault.jsonl" \
      &>"$work/screen.txt" && [[ $(wc -l <"$work/fault.jsonl") == "$steps" ]] &&
      ! cmp -s "$work/fault.jsonl" "$work/06_cpu_fp32.jsonl"; then
    ((seen += 1))
    echo "seen    $chapter 4 ranks --fault $fault"
  else
    ((failed += 1))
    echo "FAILED  $chapter 4 ranks --fault $fault: not seen"
  fi
done

# rows TABLE: a line of the report for each chapter.
rows() {
  local chapter
  for chapter in "${chapters[@]}"; do
    echo "| $chapter | ${good["$1 $chapter"]-0} | ${bad["$1 $chapter"]-0} |"
  done
}
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD -- kernels common chapters 2>/dev/null || commit+=", with changes"
{
  echo "# Same bits on every layout: data parallelism in full"
  echo
  echo "\`scripts/nightly.sh\`, commit $commit, on ${processor:-an unknown processor}," \
    "$(nproc) cores. Each run takes $steps steps of \`nano\` with 32 sequences, AdamW and" \
    "\`--clip 1\`, and its trace (loss, gradient norm, learning rate and a hash of all weights," \
    "every step) is compared with that of 06_checkpointing on one rank, as text."
  echo
  echo "## Layouts"
  echo
  echo "1, 2, 4 and 8 ranks; threads and processes under \`mpirun\`; 1, 2 and 4 micro-steps; FP32" \
    "and BF16; backends cpu, and ref with \`${sizes[ref]}\`: 96 runs of each chapter."
  echo
  echo "| chapter | same | different |"
  echo "|---|---|---|"
  rows layouts
  echo
  echo "## Recomputation and precision"
  echo
  echo "\`--recompute\` ${policies[*]}; each in FP32, BF16, FP16 and FP8; 4 ranks as threads," \
    "2 micro-steps: 24 runs of each chapter."
  echo
  echo "| chapter | same | different |"
  echo "|---|---|---|"
  rows recompute
  echo
  echo "## Controls"
  echo
  echo "With one sum of gradients lost (\`--fault\`) the trace differs: $seen of $controls chapters."
  echo
  echo "$total runs and $controls controls: $failed failed."
} >"$result"

echo
echo "$total runs ($again of them done before) and $controls controls in" \
  "$((SECONDS - start)) s: $failed failed; see $result"
((failed == 0))
