#!/usr/bin/env bash
# A rank that is killed in the middle of a run ends all processes within seconds.
#
#   killed.sh PROGRAM
set -uo pipefail
program=$1

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
seq 1 2000 >text.txt
fault() {
  cat screen.txt
  echo "killed.sh: $1" >&2
  exit 1
}

timeout 100 mpirun --oversubscribe --bind-to none -n 3 "$program" --data text.txt --model nano \
  --layers 2 --batch 12 --reduction tree --steps 1000000 --threads 1 --trace trace.jsonl \
  &>screen.txt &
run=$!

# Wait until it trains.
for ((i = 0; i < 600; ++i)); do
  [[ -s trace.jsonl ]] && break
  sleep 0.1
done
[[ -s trace.jsonl ]] || fault "no step within a minute"

# timeout's child is mpirun, whose children are the ranks.
read -r launcher <"/proc/$run/task/$run/children" || true
read -ra ranks <"/proc/${launcher:?}/task/$launcher/children" || true
((${#ranks[@]} == 3)) || fault "${#ranks[@]} ranks, not 3"
kill -KILL "${ranks[1]}"

start=$SECONDS
wait "$run"
status=$?
((SECONDS - start < 20)) || fault "went on for $((SECONDS - start)) s"
((status != 0)) || fault "exit status 0"
for rank in "${ranks[@]}"; do
  kill -0 "$rank" 2>/dev/null && fault "rank $rank is still there"
done
echo "ended $((SECONDS - start)) s after the kill, exit status $status"
