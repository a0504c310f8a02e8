#!/usr/bin/env bash
# Trains a small GPT on the King James Bible through the chapters of one rank, then runs all
# chapters side by side. With installation and build it takes about ten minutes on two cores. Results
# go to runs/demo/ and to a page, build/report/index.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($# == 0)) || { echo "demo.sh: takes no arguments" >&2; exit 2; }

bash scripts/setup.sh
echo "== build"
cmake --preset cpu >/dev/null
chapters=(chapters/*/main.cpp)
chapters=("${chapters[@]#chapters/}")
chapters=("${chapters[@]%/main.cpp}")
cmake --build --preset cpu --parallel "$(nproc)" --target "${chapters[@]/#/ch}"

runs=runs/demo
mkdir -p "$runs"
bash scripts/text.sh "$runs/bible.txt"

# train NN_name flags...: one chapter, its command shown so that it can be repeated.
train() {
  local command=("build/cpu/bin/ch$1" --data "$runs/bible.txt" --model tiny --batch 12 "${@:2}"
    --report "$runs/${1%%_*}.json")
  printf '\n== %s\n%s\n' "$1" "${command[*]}"
  "${command[@]}"
}

train 01_sgd --steps 500 --lr 0.1 --momentum 0.9
train 02_adamw --steps 500 --lr 1e-3
train 03_schedules --steps 500 --lr 1e-3 --schedule cosine --warmup 50
# Four times as many steps, clipped gradients: validation loss at most 1.65 nats per byte.
train 04_clipping --steps 2000 --lr 1e-3 --beta2 0.99 --schedule cosine --warmup 100 --clip 1 \
  --eval-every 500 --sample 300

# Fewer bytes: 16-bit activations, then only those of two blocks at a time.
train 05_mixed_precision --steps 500 --lr 1e-3 --schedule cosine --warmup 50 --clip 1 --precision bf16
train 06_checkpointing --steps 500 --lr 1e-3 --schedule cosine --warmup 50 --clip 1 --precision bf16 \
  --recompute sqrt

printf '\n== summary\n'
python3 scripts/summary.py "$runs"/0[1-6].json

# The same run on one rank and on several, however its memory, its layers or its depth are split
# among them: the same bits.
printf '\n== all chapters side by side\n'
bash scripts/compare.sh --rounds 1 --steps 6
