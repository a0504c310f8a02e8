#!/usr/bin/env bash
# A rank that is stopped in the middle of a run, or that --fault lets stall or die, ends all
# processes within seconds. Who has waited for it says so. A run that is stopped as a whole, as by
# Ctrl-Z, goes on afterwards.
#
#   lost_rank.sh PROGRAM
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
  echo "lost_rank.sh: $1" >&2
  exit 1
}
start() {
  rm -f screen.txt  # or the steps of the run before would be taken for this one's
  timeout -k 5 100 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 3 \
    "$program" --data text.txt --model nano --layers 2 --batch 12 --reduction tree \
    --steps 1000000 --threads 1 "$@" &>screen.txt &
  run=$!
}
# Waits until it trains, and finds its ranks.
train() {
  start "$@"
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
}
# ends SECONDS STATUS TEXT: within so many seconds, with a line like TEXT.
ends() {
  local begin=$SECONDS status
  wait "$run"
  status=$?
  run=
  ((SECONDS - begin < $1)) || fault "went on for $((SECONDS - begin)) s"
  [[ $status == "$2" ]] || fault "exit status $status, wanted $2"
  grep --text -q "$3" screen.txt || fault "does not say '$3'"
}
# mpirun does not wait for those that it has told to end.
all_gone() {
  for ((i = 0; i < 50; ++i)); do
    [[ -e /proc/${ranks[0]} || -e /proc/${ranks[1]} || -e /proc/${ranks[2]} ]] || return 0
    sleep 0.1
  done
  fault "5 s later one of the ranks ${ranks[*]} is still there"
}

train --timeout 3
kill -STOP "${ranks[@]}"
sleep 6
kill -CONT "${ranks[@]}"
sleep 1
kill -0 "${ranks[@]}" 2>/dev/null || fault "Ctrl-Z is death"
kill -STOP "${ranks[1]}"
# In a collective of MPI's own it is one of all others, because MPI does not say which one lacks.
ends 60 1 "^error: rank [02]: waited 3 s for ranks\? [0-9, ]*1[0-9, ]* in "
all_gone
start --timeout 3 --fault stall:all_gather:3
ends 60 1 "^error: rank [01]: waited 3 s for ranks [01], 2 in all_gather of "
grep --text -q "note: --fault: rank 2 stalls in all_gather of " screen.txt || fault "no note"
start --timeout 3 --fault die:all_gather:3
ends 60 137 "note: --fault: rank 2 dies in all_gather of "
echo "stopped, stalled or dead: told each time"
