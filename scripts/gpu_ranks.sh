#!/usr/bin/env bash
# Whether ranks that share one GPU have the bits of one rank: chapters 07 to 13 beside 06, as threads
# or as processes that talk by NCCL. Ranks that share layers multiply other matrices than one rank:
# they are held against each other, with the loss of 06 beside them. Prints a table; status 1 if a
# trace differs, 77 where NCCL cannot run.
#
#   scripts/gpu_ranks.sh TEXT BIN BACKEND threads|nccl
set -uo pipefail
if ! [[ $# == 4 && $4 =~ ^(threads|nccl)$ ]]; then
  echo "gpu_ranks.sh: usage: scripts/gpu_ranks.sh TEXT BIN BACKEND threads|nccl" >&2
  exit 2
fi
text=$(realpath "$1") bin=$(realpath "$2") backend=$3 how=$4
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

# Why NCCL cannot run; nothing where it can.
why_not() {
  command -v mpirun >/dev/null || { echo "no mpirun"; return; }
  local library
  for library in libmpi libnccl; do
    ldd "$bin/ch07_ddp" | grep -q "$library" || echo "built without $library"
  done
}
if [[ $how == nccl ]]; then
  reason=$(why_not | head -n 1)
  [[ -z $reason ]] || { echo "$reason"; exit 77; }
fi

# train TRACE COMMAND...: a short run. Processes take turns on the GPU, so that each exchange takes
# long; and one that hangs shall leave time for the others.
steps=10 limit=60
[[ $how == nccl ]] && steps=3 limit=25
flags=(--data "$text" --model nano --batch 32 --micro-batch 4 --steps "$steps" --clip 1
  --backend "$backend" --quiet)
train() {
  local trace=$1
  shift
  rm -f "$trace"
  timeout "$limit" "$@" "${flags[@]}" --trace "$trace" >"$trace.log" 2>&1 || tail -n 3 "$trace.log" >&2
}

failed=0
# compare NAME TRACE REFERENCE OF: whether the two traces are the same.
compare() {
  local verdict="the bits of $4"
  cmp -s "$3" "$2" && [[ -s $3 ]] || { verdict=DIFFERS; failed=1; }
  echo "| $1 | $verdict |"
}
# ranks NAME COUNT REFERENCE OF PROGRAM...
ranks() {
  local name=$1 count=$2 reference=$3 of=$4
  shift 4
  if [[ $how == nccl ]]; then
    train ranks bash "$root/tests/common/comm/nccl.sh" "$count" "$@"
    compare "$name, $count processes, NCCL" ranks "$reference" "$of"
  else
    train ranks "$@" --ranks "$count"
    compare "$name, $count threads" ranks "$reference" "$of"
  fi
}
last_loss() { tail -n 1 "$1" | sed -E 's/.*"loss":"([^"]*)".*/\1/' | xargs printf '%.5f'; }

train one "$bin/ch06_checkpointing"
echo "| run | trace |"
echo "|---|---|"
for chapter in 07_ddp 08_zero1 09_zero2 10_zero3; do
  for count in 2 4; do ranks "$chapter" "$count" one 06 "$bin/ch$chapter"; done
done
for pipeline in gpipe 1f1b interleaved zb-h1; do
  ranks "12_pipeline_parallel, $pipeline" 2 one 06 \
    "$bin/ch12_pipeline_parallel" --pp 2 --pipeline "$pipeline"
done
ranks "13_3d_parallel, pp 2, dp 2" 4 one 06 "$bin/ch13_3d_parallel" --pp 2

train shared "$bin/ch11_tensor_parallel" --tp 2
echo "| 11_tensor_parallel, tp 2 | last loss $(last_loss shared), of 06 $(last_loss one) |"
ranks "11_tensor_parallel, --sequence-parallel" 2 shared "11 at tp 2" \
  "$bin/ch11_tensor_parallel" --tp 2 --sequence-parallel
ranks "13_3d_parallel, tp 2, pp 2" 4 shared "11 at tp 2" "$bin/ch13_3d_parallel" --tp 2 --pp 2
exit "$failed"
