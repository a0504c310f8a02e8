#!/usr/bin/env bash
# Trains a small GPT on the King James Bible with the programs of chapters 01, 02, 04 and 06, the last
# of them on tokens of chapter 24. Chapter 31 writes text with what that has trained. Then the same
# steps run on one rank and on eight, side by side.
# It takes less than ten minutes on two cores, installation and build included. Results go to
# runs/demo/ and to a page, build/report/index.html.
# scripts/compare.sh compares all chapters.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($# == 0)) || { echo "demo.sh: takes no arguments" >&2; exit 2; }

bash scripts/setup.sh
echo "== build"
cmake --preset cpu >/dev/null
cmake --build --preset cpu --parallel "$(nproc)" --target ch01_sgd ch02_adamw ch04_clipping ch06_checkpointing \
  ch24_tokenizer ch31_generate

runs=runs/demo
mkdir -p "$runs"
bash scripts/text.sh "$runs/bible.txt"

# show NN_name flags...: one chapter, its command shown so that it can be repeated.
show() {
  local command=("build/cpu/bin/ch$1" "${@:2}")
  printf '\n== %s\n%s\n' "$1" "${command[*]}"
  "${command[@]}"
}
train() {
  show "$1" --data "$runs/bible.txt" --model tiny --report "$runs/${1%%_*}.json" "${@:2}"
}

train 01_sgd --batch 12 --steps 300 --lr 0.1 --momentum 0.9
train 02_adamw --batch 12 --steps 300 --lr 1e-3
# Many more steps, a schedule, clipped gradients: validation loss at most 1.65 nats per byte.
train 04_clipping --batch 12 --steps 2000 --lr 1e-3 --beta2 0.99 --schedule cosine --warmup 100 --clip 1 \
  --eval-every 500 --sample 300
# Tokens in place of bytes, and activations of two blocks at a time. The text is that of README.md.
show 24_tokenizer train --data "$runs/bible.txt" --vocab 2048 --out "$runs/bpe"
train 06_checkpointing --tokenizer "$runs/bpe" --batch 8 --steps 1500 --lr 2e-3 \
  --schedule cosine --warmup 100 --clip 1 --recompute sqrt --save "$runs/model" --overwrite
show 31_generate --load "$runs/model" --prompt "In the beginning" --max-tokens 60 --temperature 0.8 --top-k 40

# The same run on one rank and on several, however its memory, its layers or its depth are split
# among them: the same bits.
printf '\n== one rank and eight, side by side\n'
bash scripts/compare.sh --only 07,10,11,12 --rounds 1 --steps 6
