#!/usr/bin/env bash
# A real run with chapter 38's program, from texts to a model that writes: three sources, duplicates
# removed, a tokenizer, packed documents in order, four ranks in two shard groups, Muon, saves beside
# training, curves for TensorBoard. On the way a bad batch raises an alarm, and the run goes back. A
# rank is killed, too, and the run goes on with two ranks: three cannot be two shard groups.
#
#   scripts/pretrain.sh [--steps N]     N is 4,000 if not given, about twenty minutes on two cores that do other work, too
#
# After a stop the same command goes on from the last checkpoint. Results lie in runs/pretrain/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

refuse() { echo "pretrain.sh: $*; legal is [--steps N], N from 40 on" >&2; exit 2; }
steps=4000
case $# in
  0) ;;
  2) [[ $1 == --steps && $2 =~ ^[1-9][0-9]{1,6}$ && $2 -ge 40 ]] || refuse "$*"; steps=$2 ;;
  *) refuse "$*" ;;
esac

bash scripts/setup.sh
cmake --preset cpu >/dev/null
cmake --build --preset cpu --parallel "$(nproc)" --target ch24_tokenizer ch25_corpus ch26_packing ch31_generate ch38_pretrain
bin=build/cpu/bin runs=runs/pretrain
mkdir -p "$runs"

# In most containers one is root. Open MPI refuses to run as root, unless both variables allow it.
if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

show() { printf '\n== %s\n' "$*"; "$@"; }

# Three sources: verses, stories, and the pages of this project. A line is a document. Documents and windows are
# short, so neighboring batches have about as much of each source: otherwise the loss would swing, and raise alarms.
# The last tenth of each source is held out: another file, which no step reads.
tokens=$runs/tokens held=$runs/held_out
if [[ ! -f $held/pages.idx ]]; then
  rm -rf "$runs/raw" "$runs/kept" "$tokens" "$held" "$runs/bpe"  # half-made files of a run that was stopped
  bash scripts/text.sh "$runs/bible.txt"
  bash scripts/text.sh --grammar "$runs/stories.txt"
  cat chapters/*/README.md docs/*.md >"$runs/pages.txt"
  mkdir -p "$runs/raw" "$runs/kept" "$tokens" "$held"
  for source in bible stories pages; do
    python3 - "$runs/$source.txt" "$runs/raw/$source.jsonl" <<'PYTHON'
import json, sys
with open(sys.argv[1], encoding="utf-8") as text, open(sys.argv[2], "w", encoding="utf-8") as out:
    out.writelines(json.dumps({"text": line.rstrip("\n")}) + "\n" for line in text if line.strip())
PYTHON
    # Of the pages, prose: a line of a hundred dashes has a gradient that is an alarm.
    filter=()
    [[ $source == pages ]] && filter=(--filter fineweb)
    show $bin/ch25_corpus --data "$runs/raw/$source.jsonl" --out "$runs/kept/$source.jsonl" "${filter[@]}" --dedup exact
  done
  show $bin/ch24_tokenizer train --data "$runs/bible.txt" --vocab 2048 --out "$runs/bpe"
  for source in bible stories pages; do
    most=$(($(wc -l <"$runs/kept/$source.jsonl") * 9 / 10))
    head -n $most "$runs/kept/$source.jsonl" >"$tokens/$source.jsonl"
    tail -n +$((most + 1)) "$runs/kept/$source.jsonl" >"$held/$source.jsonl"
    for part in "$tokens" "$held"; do
      show $bin/ch24_tokenizer encode --tokenizer "$runs/bpe" --data "$part/$source.jsonl" --format megatron --out "$part/$source.bin"
    done
  done
fi

reading=(--tokens uint16 --tokenizer "$runs/bpe" --model llama-tiny --seq-len 128 --documents)

# validate FLAGS: the loss on what is held out of each source; no step.
validate() {
  local source
  for source in bible stories pages; do
    show $bin/ch38_pretrain --data "$held/$source.bin" --sources "$tokens/$source.bin:1" "${reading[@]}" --batch 16 --steps 0 "$@" |
      grep -E '^(==|validation loss|bits per byte)'
  done
}

# Kills the youngest rank when a third of the steps is done, once. Ranks are children of the launcher, and that of
# keep_running.sh.
kill_a_rank() {
  local launcher
  until [[ -f $runs/killed ]]; do
    sleep 1
    if [[ $(cat "$runs"/trace.jsonl.partial 2>/dev/null | wc -l) -ge $((steps / 3)) ]]; then
      launcher=$(pgrep -d , -P "$(pgrep -P $$ -f keep_running.sh)") || continue
      pkill -KILL -n -P "$launcher" -x ch38_pretrain && : >"$runs/killed"
    fi
  done
}
if [[ ! -f $runs/killed ]]; then
  validate
  kill_a_rank &
  killer=$!
  trap 'kill $killer 2>/dev/null || true' EXIT
fi

show scripts/keep_running.sh --ranks 4 --mpirun "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1" -- \
  $bin/ch38_pretrain --data "$held/bible.bin" --sources "$tokens/bible.bin:8,$tokens/stories.bin:1,$tokens/pages.bin:1" \
  "${reading[@]}" --pack-window 32 --batch 16 --micro-batch 2 --steps "$steps" --replicas 2 \
  --optimizer muon --lr 2e-3 --schedule cosine --warmup $((steps / 15)) --decay-steps "$steps" --clip 1 --eval-every $((steps / 5)) --save "$runs/model" --save-every $((steps / 20)) --async \
  --keep 3 --bad-batch $((steps / 2)) --alarms --rewind 1 --watch-every 10 --events "$runs/events" \
  --trace "$runs/trace.jsonl" --report "$runs/report.json"

# What the model has learned of each source; a text; and its loss in transformers, where they are installed.
validate --load "$runs/model/model.safetensors"
show $bin/ch31_generate --load "$runs/model" --prompt "In the beginning" --max-tokens 60 --temperature 0.8 --top-k 40
show python3 -B tests/clients/test_pretrain.py --build build/cpu --of "$runs" || (($? == 77))
