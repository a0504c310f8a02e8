#!/usr/bin/env bash
# Runs a chapter's program under mpirun, and starts it again when a rank has died: from the last whole
# checkpoint, on the largest number of ranks that are left and that its layout allows. The bits do not
# depend on the ranks, so the run ends with the weights of one that nothing disturbed.
#
#   scripts/keep_running.sh --ranks 8 -- build/cpu/bin/ch28_async_checkpoint --data T --save D \
#     --save-every 20 --async ...
#
#   --ranks N     how many ranks there are at first
#   --per-host P  ranks of one machine, which are all lost if ranks of several machines have waited longer
#                 than --timeout; 1 if not given
#   --mpirun CMD  another way to start N ranks: CMD -n N PROGRAM FLAGS
#
# FLAGS need --save. A death costs one rank. Two deaths without a new checkpoint between them end it: a
# third run would die there, too. So does an end that no death explains: refused flags, a full disk, a
# signal, a program that cannot be started. The status is that of the last run. A run that
# dies leaves FILE.partial of --trace, --timeline and --report. It is renamed to FILE.1.partial, that of
# the next death to FILE.2.partial. If no checkpoint is there yet, the folder of --events is renamed, too.
set -uo pipefail

refuse() { echo "keep_running.sh: $1" >&2; exit 2; }

ranks="" per_host=1 mpirun="mpirun"
while (($# > 0)) && [[ $1 != -- ]]; do
  [[ $1 =~ ^--(ranks|per-host|mpirun)$ && -n ${2-} ]] \
    || refuse "'$1'; legal: --ranks N [--per-host P] [--mpirun CMD] -- PROGRAM FLAGS"
  case $1 in
    --ranks) ranks=$2 ;;
    --per-host) per_host=$2 ;;
    --mpirun) mpirun=$2 ;;
  esac
  shift 2
done
shift || refuse "no program; legal: --ranks N -- PROGRAM FLAGS"
[[ $ranks =~ ^[1-9][0-9]*$ && $per_host =~ ^[1-9][0-9]*$ ]] \
  || refuse "--ranks '$ranks', --per-host '$per_host'; legal are whole numbers from 1 on"
program=("$@") save="" events="" outputs=() plan=() skip=0
[[ -x ${program[0]-} ]] || refuse "'${program[0]-}' is no program"
read -r launcher _ <<<"$mpirun"
command -v -- "$launcher" >/dev/null \
  || refuse "no program '$launcher'; legal is --mpirun CMD that runs as CMD -n N PROGRAM FLAGS"

# --plan-only, which finds out whether a number of ranks is legal, takes no flag of files.
for ((i = 0; i < ${#program[@]}; ++i)); do
  word=${program[i]} name=${program[i]%%=*} value=${program[i]#*=}
  if ((skip)); then
    skip=0
    continue
  fi
  [[ $word == "$name" ]] && value=${program[i + 1]-}
  case $name in
    --load) refuse "--load; legal is --save, from whose last checkpoint it goes on" ;;
    --save) save=$value ;;&
    --events) events=${value%/} ;;&
    --trace | --timeline | --report) outputs+=("$value") ;;&
    --save | --save-every | --keep | --trace | --timeline | --report | --fault)
      [[ $word == "$name" ]] && skip=1
      ;;
    --overwrite | --async | --quiet) ;;
    *) plan+=("$word") ;;
  esac
done
[[ -n $save ]] || refuse "no --save among the program's flags: nothing could be gone on from"

# checkpoint: the name of the one to go on from. A copy may lack the link: the program then takes the
# whole one with the most steps.
checkpoint() {
  local one
  readlink "$save/current" 2>/dev/null && return
  for one in "$save"/generation-*; do
    [[ -f $one/checkpoint.json && ! -L $one/current ]] && echo "${one##*/}"
  done | sort -V | tail -n 1
}

# aside FILE SUFFIX: renames FILESUFFIX to FILE.1SUFFIX, or the first number that is free.
aside() {
  local k=1
  while [[ -e $1.$k$2 ]]; do ((++k)); done
  mv -- "$1$2" "$1.$k$2" || return
  echo "keep_running.sh: what the run before wrote is now $1.$k$2"
}

# put_aside: the next run with the same flags would write over what the last one has written.
put_aside() {
  local file
  for file in "${outputs[@]}"; do
    # Through links, as the program does it.
    file=$(realpath -m --relative-base=. -- "$file")
    if [[ -s $file.partial ]]; then aside "$file" .partial || return; fi
  done
}

# legal N: the largest number of ranks up to N that the program takes; if there is none, it prints why one
# rank is refused.
legal() {
  local n
  for ((n = $1; n > 0; --n)); do
    if "${plan[@]}" --ranks "$n" --plan-only --quiet >/dev/null 2>"$errors"; then
      echo "$n"
      return 0
    fi
  done
  cat "$errors" >&2
  return 1
}

exec 3>&1  # standard output, where a pipe takes standard error
errors=$(mktemp) || exit 2
trap 'rm -f "$errors"' EXIT
died_at=none
put_aside || exit 1  # of a run that was stopped, and this script with it
while true; do
  n=$(legal "$ranks") || refuse "no number of ranks up to $ranks is legal for: ${program[*]}"
  load=() from=$(checkpoint)
  if [[ -n $from ]]; then
    load=(--load "$save")
  elif [[ -n $events && -n $(ls -A -- "$events" 2>/dev/null) ]]; then
    aside "$events" "" || exit 1  # a run from the beginning takes no folder that holds files
  fi
  echo "keep_running.sh: $n ranks, from ${from:-the beginning}"
  # shellcheck disable=SC2086  # a command may have words
  $mpirun -n "$n" "${program[@]}" "${load[@]}" 2>&1 >&3 | tee "$errors" >&2
  status=${PIPESTATUS[0]}
  # 2: bad input; 3: not done; 126 and 127: not started; 130 and 143: somebody has stopped it.
  case $status in 0 | 2 | 3 | 126 | 127 | 130 | 143) exit "$status" ;; esac
  put_aside || exit "$status"
  now=$(checkpoint)
  if [[ $died_at == "died at ${now}" ]]; then
    echo "keep_running.sh: two deaths after ${now:-the beginning} without a new checkpoint" >&2
    exit "$status"
  fi
  died_at="died at ${now}"
  lost=1
  grep -q "^error: rank [0-9]* on [^ ]*: waited " "$errors" && lost=$per_host
  ranks=$((ranks - lost))
  ((ranks > 0)) || { echo "keep_running.sh: no rank is left" >&2; exit "$status"; }
  echo "keep_running.sh: status $status; $ranks ranks are left"
done
