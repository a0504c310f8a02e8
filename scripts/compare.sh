#!/usr/bin/env bash
# All techniques side by side: runs every chapter with one model, text and global batch, and writes
# build/report/index.html. About twelve minutes on two cores, after the build: seven to compare, and
# one for each round in which the programs take turns to be timed. Programs that share the work have
# eight ranks each. scripts/compare/picture.sh makes docs/compare.png of its top.
#
#   scripts/compare.sh
#   scripts/compare.sh --ranks 2 --model tiny --batch 32 --micro-batch 4
#   scripts/compare.sh --help
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")

# Debian's own Python: another one on the path would not find its matplotlib. It reads the flags
# before it installs the rest.
[[ -x /usr/bin/python3 ]] || bash "$scripts/setup.sh"
exec /usr/bin/python3 -B "$scripts/compare/compare.py" "$@"
