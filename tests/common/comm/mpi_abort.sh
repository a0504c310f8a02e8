#!/usr/bin/env bash
# A rank that throws, does not come or is killed ends all processes within seconds, and somebody says why.
#
#   mpi_abort.sh PROGRAM how status [text]
set -uo pipefail
program=$1 how=$2 wanted=$3 text=${4:-}

start=$SECONDS
said=$(timeout 60 mpirun --oversubscribe -n 3 "$program" "$how" 2>&1)
status=$?
echo "$said"
fault() {
  echo "mpi_abort.sh: $how: $1" >&2
  exit 1
}
((SECONDS - start < 30)) || fault "took $((SECONDS - start)) s"
[[ $status == "$wanted" ]] || fault "exit status $status, wanted $wanted"
[[ -z $text || $(grep --count --fixed-strings "$text" <<<"$said") == 1 ]] || fault "does not say '$text' once"
