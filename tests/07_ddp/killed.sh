#!/usr/bin/env bash
# A rank that is killed in the middle of a run ends all processes within seconds.
#
#   killed.sh PROGRAM
set -uo pipefail
program=$1
# Root may start processes in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

folder=$(mktemp -d)
run=
trap '[[ -n $run ]] && kill "$run" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
seq 1 2000 >text.txt
fault() {
  tr '\r' '\n' <screen.txt | tail -n 20
  echo "killed.sh: $1" >&2
  exit 1
}

timeout 100 mpirun --oversubscribe --bind-to none -n 3 "$program" --data text.txt --model nano \
  --layers 2 --batch 12 --reduction tree --steps 1000000 --threads 1 \
  &>screen.txt &
run=$!

# Wait until it trains.
for ((i = 0; i < 600; ++i)); do
  grep -qsE 'step +[0-9]+/' screen.txt && break
  kill -0 "$run" 2>/dev/null || fault "it has ended by itself"
  sleep 0.1
done
((i < 600)) || fault "no step within a minute"

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
# mpirun does not wait for those that it has told to end.
for ((i = 0; i < 50; ++i)); do
  [[ -e /proc/${ranks[0]} || -e /proc/${ranks[1]} || -e /proc/${ranks[2]} ]] || break
  sleep 0.1
done
((i < 50)) || fault "5 s later one of the ranks ${ranks[*]} is still there"
echo "ended $((SECONDS - start)) s after the kill, exit status $status"
