#!/usr/bin/env bash
# Whether ranks that share one GPU have the bits of one rank: chapters 07 to 10 beside 06, as threads
# and, where there is an mpirun, as processes that talk by NCCL. Prints a table; status 1 if a trace
# differs.
#
#   scripts/gpu_ranks.sh TEXT BIN BACKEND
set -uo pipefail
(($# == 3)) || { echo "gpu_ranks.sh: usage: scripts/gpu_ranks.sh TEXT BIN BACKEND" >&2; exit 2; }
text=$(realpath "$1") bin=$(realpath "$2") backend=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

# train TRACE COMMAND...: a short run.
flags=(--data "$text" --model nano --batch 32 --micro-batch 4 --steps 10 --clip 1 --backend "$backend"
  --quiet)
train() {
  local trace=$1
  shift
  rm -f "$trace"
  timeout 60 "$@" "${flags[@]}" --trace "$trace" >"$trace.log" 2>&1 || tail -n 3 "$trace.log" >&2
}

failed=0
# compare NAME TRACE
compare() {
  local verdict="the bits of 06"
  cmp -s one "$2" && [[ -s one ]] || { verdict=DIFFERS; failed=1; }
  echo "| $1 | $verdict |"
}

train one "$bin/ch06_checkpointing"
echo "| run | trace |"
echo "|---|---|"
for chapter in 07_ddp 08_zero1 09_zero2 10_zero3; do
  for ranks in 2 4; do
    train threads "$bin/ch$chapter" --ranks "$ranks"
    compare "$chapter, $ranks threads" threads
    [[ $backend == cuda ]] && command -v mpirun >/dev/null || continue
    train nccl bash "$root/tests/common/comm/nccl.sh" "$ranks" "$bin/ch$chapter"
    compare "$chapter, $ranks processes, NCCL" nccl
  done
done
exit "$failed"
