#!/usr/bin/env bash
# Tries to make programs lose a checkpoint: kills them at random moments and at each system call of a
# save, lets each system call fail in turn, takes the power from a disk. After each trial the directory
# must hold one whole checkpoint, and the run that goes on from it must have the trace of a run that was
# never interrupted.
#
#   scripts/torture.sh               all of it, about an hour; writes docs/results/torture.md
#   scripts/torture.sh --short       a few trials of each part, two minutes; writes nothing
#   scripts/torture.sh --part kills  one part: kills, power, calls, errors
#   scripts/torture.sh --help        all flags
#
# System calls want strace; taking the power wants root and a loop device. A part that this machine
# does not allow is named as skipped.
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")
exec python3 -B "$scripts/torture.py" "$@"
