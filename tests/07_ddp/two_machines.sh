#!/usr/bin/env bash
# Two network namespaces, a and b, with names of their own and links between them, are two machines.
# Exit status 77 where they cannot be made: that takes root, iproute2, and a kernel that allows it.
#
#   two_machines.sh CASE PROGRAM    a program of a chapter with ranks
set -uo pipefail
case=$1 program=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

folder=$(mktemp -d)
export NET=l$$
clean_up() {
  for host in a b; do
    ip netns pids $NET$host | xargs -r kill -KILL
    ip netns del $NET$host
  done
  rm -rf "$folder"
}
trap 'clean_up 2>/dev/null' EXIT
cd "$folder" || exit 1
skip() {
  echo "skipped: $1"
  exit 77
}
fault() {
  cat screen.txt
  echo "two_machines.sh: $case: $1" >&2
  exit 1
}

# link NAME NETWORK: from a to b.
link() {
  ip -n ${NET}a link add "$1" type veth peer name "$1" netns ${NET}b &&
    ip -n ${NET}a addr add "$2.1/24" dev "$1" && ip -n ${NET}b addr add "$2.2/24" dev "$1" &&
    ip -n ${NET}a link set "$1" up && ip -n ${NET}b link set "$1" up
}
command -v ip >/dev/null || skip "there is no ip, of iproute2"
{ ip netns add ${NET}a && ip netns add ${NET}b && link data 10.77.1 && link control 10.77.2 &&
  ip -n ${NET}a link set lo up && ip -n ${NET}b link set lo up && unshare -u true; } 2>why.txt ||
  skip "no namespaces here: $(tail -n 1 why.txt)"

# on HOST COMMAND: with that host's network and name.
cat >on.sh <<'END'
host=$1
shift
exec ip netns exec "$NET$host" unshare -u bash -c 'hostname "$0" && eval "$@"' "$host" "$@"
END
# machines RANKS FLAGS: the program, with as many ranks on each machine. Its status and screen.txt.
machines() {
  local each=$1
  shift
  timeout 60 bash on.sh a mpirun -n $((2 * each)) --host "a:$each,b:$each" --bind-to none \
    --mca plm rsh --mca plm_rsh_agent "'bash $folder/on.sh'" --mca btl tcp,self \
    --mca oob_tcp_if_include control --mca btl_tcp_if_include "${interface:-data}" \
    bash -c "'exec $program $*'" &>screen.txt
}
# ends STATUS WORDS: the last run.
ends() {
  local status=$?
  [[ $status == "$1" ]] || fault "exit status $status, wanted $1"
  [[ -z $2 || $(grep --count --fixed-strings "$2" screen.txt) == 1 ]] || fault "does not say '$2' once"
}

# wait_until WHAT COMMAND
wait_until() {
  for ((i = 0; i < 300; ++i)); do
    "${@:2}" && return
    sleep 0.1
  done
  fault "30 s without $1"
}
no_ranks() {
  local name
  name=$(basename "$program")
  ! { ip netns pids ${NET}a; ip netns pids ${NET}b; } | xargs -r ps -o comm= -p | grep -qF "${name:0:15}"
}

seq 1 2000 >a.txt
flags="--data a.txt --model nano --layers 2 --batch 8 --threads 1 --quiet"
case $case in
same_bits)
  "$program" $flags --steps 2 --trace one.jsonl &>screen.txt || fault "one process fails"
  machines 2 "$flags --steps 2 --trace two.jsonl"
  ends 0 ""
  cmp one.jsonl two.jsonl || fault "other bits on two machines"
  ;;
no_way)
  interface=lo machines 1 "$flags --steps 2 --timeout 2"
  ends 1 "error: rank 0 on a: waited 2 s for other ranks, which have not been heard through MPI"
  ;;
lost_launcher)  # mpirun is out of reach when the run ends, and outlives its ranks.
  machines 1 "$flags --steps 60 --timeout 2 --trace trace.jsonl" &
  wait_until "training" [ -s trace.jsonl.partial ]
  ip -n ${NET}b link set control down
  wait_until "the end of all ranks" no_ranks
  grep -q "error: rank 0 on a: waited 2 s for the end of MPI" screen.txt || fault "says nothing"
  ;;
missing_file)
  machines 2 "${flags/a.txt/\$(hostname).txt} --steps 1"
  ends 2 "error: rank 2 on b: --data b.txt"
  ;;
esac
