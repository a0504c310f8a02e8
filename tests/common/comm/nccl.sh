#!/usr/bin/env bash
# Runs a program on several ranks that share one GPU. NCCL refuses two ranks of one host on one GPU,
# so each names a host of its own, and they talk by way of the loopback: right, but no measure of
# speed.
#
#   nccl.sh RANKS PROGRAM ARGUMENT...
set -euo pipefail
ranks=$1
shift
export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
# What waits for a peer shall leave room on the GPU for what that peer waits for.
export NCCL_MAX_CTAS=2 CUDA_MODULE_LOADING=EAGER
# Bound to a core, the ranks of two runs would share the first ones and wait for each other there.
# shellcheck disable=SC2016  # the inner shell is to read these
exec mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n "$ranks" \
  bash -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' - "$@"
