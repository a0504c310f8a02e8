#!/usr/bin/env bash
# Trains a small GPT on the King James Bible through all chapters: about six minutes on two cores,
# after installation and build. Results go to runs/demo/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($# == 0)) || { echo "demo.sh: takes no arguments" >&2; exit 2; }

bash scripts/setup.sh
echo "== build"
cmake --preset cpu >/dev/null
cmake --build --preset cpu --parallel "$(nproc)" \
  --target ch01_sgd ch02_adamw ch03_schedules ch04_clipping ch05_mixed_precision \
  ch06_checkpointing ch07_ddp ch08_zero1 ch09_zero2 ch10_zero3 ch11_tensor_parallel

runs=runs/demo
mkdir -p "$runs"
bash scripts/text.sh "$runs/bible.txt"

# train NN_name flags...: one chapter, its command shown so that it can be repeated.
train() {
  run "$1" "${1%%_*}" --batch 12 "${@:2}"
}

# run NN_name REPORT flags...
run() {
  local chapter=$1 report=$2
  shift 2
  local command=("build/cpu/bin/ch$chapter" --data "$runs/bible.txt" --model tiny "$@"
    --report "$runs/$report.json")
  printf '\n== %s\n%s\n' "$chapter" "${command[*]}"
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

# The same run on one rank and on two, however its memory or its layers are split among them: the
# same bits.
same=(--batch 16 --steps 200 --lr 1e-3 --schedule cosine --warmup 50 --clip 1)
run 06_checkpointing one_rank "${same[@]}"
run 07_ddp 07 "${same[@]}" --ranks 2
run 08_zero1 08 "${same[@]}" --ranks 2
run 09_zero2 09 "${same[@]}" --ranks 2 --micro-batch 4
run 10_zero3 10 "${same[@]}" --ranks 2 --micro-batch 4 --recompute sqrt
run 11_tensor_parallel 11 "${same[@]}" --tp 2

printf '\n== summary\n'
python3 scripts/summary.py "$runs"/0[1-6].json
printf '\n== one rank and two\n'
python3 scripts/summary.py --same "$runs"/{one_rank,07,08,09,10,11}.json
