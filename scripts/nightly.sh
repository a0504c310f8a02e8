#!/usr/bin/env bash
# What takes too long for every day, in eleven parts. In the first four, same bits on every layout:
# each run's trace must be that of 06 on one rank, line by line.
#
#   data   chapters 07 to 10, 15, 16, 18 and 20 on 1, 2, 4 and 8 ranks, threads and processes, with
#          1, 2 and 4 micro-steps, in FP32 and BF16, on cpu and ref; and every recomputation in every
#          precision; chapters 14, 17, 19 and 21, which know one rank, with 1, 2 and 4 micro-steps;
#          chapter 20 with ranks that share each sequence, at every degree in every way; and
#          chapter 22 with ranks that share experts, at every degree, against 21 on one rank
#   model  chapter 11 at every degree, chapter 12 at every degree in every schedule, each with every
#          recomputation, threads and processes: FP32, and chapter 12 as threads in BF16, too
#   mesh   chapter 13 on every mesh of up to 8 ranks and one of 16, in every schedule and with
#          sequence parallelism as threads, in 1f1b as processes, too
#   llama  the same of llama-nano in every chapter that has an exact trace: micro-steps and threads,
#          ranks and ZeRO, shared layers and sequences, stages, meshes, recomputation
#   clients  Hugging Face's transformers, which it installs in build/clients, read what we save, and
#            we read what they save
#   torture  scripts/torture.sh: interrupted saves, disks that fail, ranks that do
#   fuzz     scripts/fuzz.sh, ten minutes for each kind of file
#   readmes  scripts/readme_commands.py: the commands of READMEs; and where Doxygen is,
#            the documentation site, in which each link must lead somewhere
#   labs     every mutant of each lab fails at its own gate; submissions that cheat get no more of a
#            packed autograder than they deserve
#   machines scripts/machines.sh: other compilers, arm64 under qemu, Debian 13; as root
#   pack     scripts/gpu_check.sh --pack, then --run in a tree of Debian without a network, which has
#            Python and the toolkit's libraries: it must come as far as "no GPU here"; as root
#
#   scripts/nightly.sh              all of it, with the programs of build/cpu
#   scripts/nightly.sh --part model one of the parts
#   scripts/nightly.sh --build DIR  with the programs of another build
#
# Prints a line for each run, and writes docs/results/nightly_data_parallel.md,
# nightly_model_parallel.md, nightly_mesh.md, nightly_llama.md, clients.md, clients_llama.md,
# clients_mixtral.md, torture.md and machines.md. A run of the first four parts that was done before,
# by the same programs, is not done again: what has been found lies in runs/nightly.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

build=build/cpu parts=(data model mesh llama clients torture fuzz readmes labs machines pack)
while (($# > 0)); do
  case "$1 ${2-}" in
    "--part data" | "--part model" | "--part mesh" | "--part llama" | "--part clients" | "--part torture" | \
      "--part fuzz" | "--part readmes" | "--part labs" | "--part machines" | "--part pack") parts=("$2") ;;
    --build\ ?*) build=$2 ;;
    *) echo "nightly.sh: '$*'; legal: --build DIR, --part data|model|mesh|llama|clients|torture|fuzz|readmes|labs|machines|pack" >&2; exit 2 ;;
  esac
  shift 2
done
bin=$(cd "$build/bin" && pwd) || exit 2

# Root may start processes in a container; ranks may be more than cores, and then give them way.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)

# built NUMBER...: the chapters of these numbers that the build has, as "07_ddp".
built() {
  local number program
  for number; do
    for program in "$bin/ch$number"_*; do
      [[ -x $program && -f chapters/${program##*/ch}/main.cpp ]] && echo "${program##*/ch}"
    done
  done
}

# begin RESULT STEPS CHAPTER...: of one part. What the programs are made of names the folder of what
# they have done.
begin() {
  result=docs/results/$1 steps=$2
  shift 2
  mapfile -t chapters < <(built "$@")
  ((${#chapters[@]} > 0)) || { echo "nightly.sh: no chapters $* in $build/bin" >&2; exit 2; }

  # A run counts as done for these programs and this script.
  work=runs/nightly/$(cat scripts/nightly.sh "$bin"/ch[0-9]* | sha256sum | cut -c 1-16)
  mkdir -p "$work/done" || exit 1
  exec 9>"$work/lock"
  flock --nonblock 9 || { echo "nightly.sh: another one works in $work; wait until it has ended" >&2; exit 2; }
  local text=$work/text.txt
  [[ -s $text ]] || seq 100000 100700 >"$text"  # 4,907 bytes
  # AdamW, clipping on.
  common=(--threads 1 --model "$model" --data "$text" --batch 32 --steps "$steps" --clip 1 --quiet)
  good=() bad=() total=0 failed=0 again=0 seen=0 controls=0 start=$SECONDS
}

model=nano
declare -A good bad  # runs of each table, by chapter
all_failed=0
# `ref` is the specification, not the fast one: a smaller model.
declare -A sizes=([cpu]="" [ref]="--layers 2 --channels 32 --heads 4")

# Whether a trace has every step, with finite numbers.
whole() {
  [[ $(wc -l <"$1") == "$steps" ]] && ! grep -qE 'nan|inf' "$1"
}

# alone TRACE flags: what 06 does on one rank; or 21, which has experts.
alone() {
  local trace=$1 chapter=06_checkpointing
  shift
  [[ " ${common[*]} " == *" moe-nano "* ]] && chapter=21_moe
  [[ -s $trace ]] && whole "$trace" && return
  "$bin/ch$chapter" "${common[@]}" "$@" --trace "$trace.part" >/dev/null &&
    whole "$trace.part" && mv "$trace.part" "$trace" && return
  echo "nightly.sh: $chapter does not run: $*" >&2
  exit 1
}

# check TABLE CHAPTER COMM RANKS WANTED flags: one run, against the trace WANTED.
check() {
  local table=$1 chapter=$2 comm=$3 ranks=$4 wanted=$5 command=()
  shift 5
  local name="$model $chapter $comm $ranks ranks, ${common[1]} threads $*"
  local done=$work/done/${name//[^A-Za-z0-9_-]/.} trace=$work/trace.jsonl status=0 said=""
  ((total += 1))
  if [[ -e $done ]]; then
    ((again += 1))
    said="as before"
  else
    if [[ $comm == mpi ]]; then
      command=("${mpirun[@]}" -n "$ranks" "$bin/ch$chapter")
    else
      command=("$bin/ch$chapter" --ranks "$ranks")
    fi
    rm -f "$trace"
    local began=$EPOCHREALTIME
    # mpirun reads what stands in its input: the meshes of a loop, for one.
    timeout 300 "${command[@]}" "${common[@]}" "$@" --trace "$trace" &>"$work/screen.txt" </dev/null
    status=$?
    local us=$((${EPOCHREALTIME/./} - ${began/./}))
    said="$((us / 1000)) ms"
    if ((status != 0)); then
      said="exit status $status: $(tail -n 1 "$work/screen.txt")"
    elif ! cmp -s "$trace" "$wanted"; then
      status=1 said="differs: $(cmp "$trace" "$wanted" 2>&1)"
    else
      touch "$done"
    fi
  fi
  if ((status == 0)); then
    good["$table $chapter"]=$((${good["$table $chapter"]-0} + 1))
    echo "same    $name: $said"
  else
    bad["$table $chapter"]=$((${bad["$table $chapter"]-0} + 1))
    ((failed += 1))
    echo "FAILED  $name: $said"
  fi
}

# control CHAPTER RANKS WANTED flags: one run with a fault, which must be seen.
control() {
  local chapter=$1 ranks=$2 wanted=$3
  shift 3
  ((controls += 1))
  rm -f "$work/fault.jsonl"
  if timeout 300 "$bin/ch$chapter" "${common[@]}" --ranks "$ranks" "$@" \
      --trace "$work/fault.jsonl" &>"$work/screen.txt" && [[ $(wc -l <"$work/fault.jsonl") == "$steps" ]] &&
      ! cmp -s "$work/fault.jsonl" "$wanted"; then
    ((seen += 1))
    echo "seen    $chapter $ranks ranks $*"
  else
    ((failed += 1))
    echo "FAILED  $chapter $ranks ranks $*: not seen"
  fi
}

# rows TABLE CHAPTER...: it, with a line for each chapter.
rows() {
  local chapter table=$1
  shift
  echo
  echo "| chapter | same | different |"
  echo "|---|---|---|"
  for chapter; do
    echo "| $chapter | ${good["$table $chapter"]-0} | ${bad["$table $chapter"]-0} |"
  done
  echo
}

# The end of a part.
finish() {
  ((all_failed += failed))
  echo
  echo "$total runs ($again of them done before) and $controls controls in" \
    "$((SECONDS - start)) s: $failed failed; see $result"
}
machine=$(python3 -B -c 'import sys; sys.path.insert(0, "scripts")
from measure import machine; print(machine())' || echo "an unknown machine")
gcc=$(c++ -dumpfullversion 2>/dev/null || echo unknown)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD -- kernels common chapters 2>/dev/null || commit+=", with changes"

policies=(none every:2 sqrt full selective)
precisions=(fp32 bf16 fp16)

data_parallel() {
  local single
  mapfile -t single < <(built 14 17 19 21)
  begin nightly_data_parallel.md 20 07 08 09 10 15 16 18 20
  for backend in cpu ref; do
    for precision in fp32 bf16; do
      read -ra size <<<"${sizes[$backend]}"
      flags=(--backend "$backend" --precision "$precision" "${size[@]}")
      wanted=$work/06_${backend}_$precision.jsonl
      alone "$wanted" "${flags[@]}"
      for chapter in "${chapters[@]}"; do
        for ranks in 1 2 4 8; do
          for GA in 1 2 4; do
            for comm in thread mpi; do
              check layouts "$chapter" "$comm" "$ranks" "$wanted" "${flags[@]}" \
                --micro-batch $((32 / ranks / GA))
            done
          done
        done
      done
    done
  done

  for precision in "${precisions[@]}"; do
    flags=(--precision "$precision" --loss-scale 1024)
    wanted=$work/06_recompute_$precision.jsonl
    alone "$wanted" "${flags[@]}"
    for policy in "${policies[@]}"; do
      for chapter in "${chapters[@]}"; do
        check recompute "$chapter" thread 4 "$wanted" "${flags[@]}" --recompute "$policy" --micro-batch 4
      done
    done
  done

  for chapter in "${single[@]}"; do
    for GA in 1 2 4; do
      check single "$chapter" thread 1 "$work/06_cpu_fp32.jsonl" --micro-batch $((32 / GA))
    done
  done

  # Of each chapter one lost sum of gradients, late in the run.
  for chapter in "${chapters[@]}"; do
    case $chapter in
      07_* | 15_* | 16_*) operation=all_reduce ;;
      *) operation=reduce_scatter ;;
    esac
    control "$chapter" 4 "$work/06_cpu_fp32.jsonl" --fault "skip:$operation:$((steps - 1))"
  done
  [[ -x $bin/ch20_context_parallel ]] && context_parallel
  [[ -x $bin/ch22_expert_parallel ]] && expert_parallel
  data_parallel_text >"$result"
  finish
}

# Sequences of 512 tokens, which 8 ranks can share.
long=(--layers 2 --heads 8 --channels 64 --seq-len 512 --vocab 256)
context_parallel() {
  local name=20_context_parallel model text=$work/long.txt wanted
  [[ -s $text ]] || seq 100000 101500 >"$text"  # 10,507 bytes
  for model in gpt2-124m llama-nano; do
    common=(--threads 1 --data "$text" "${long[@]}" --batch 4 --steps "$steps" --clip 1 --quiet)
    for precision in fp32 bf16; do
      wanted=$work/06_context_${model}_$precision.jsonl
      alone "$wanted" --model "$model" --precision "$precision"
      for way in gather ulysses ring; do
        for cp in 1 2 4 8; do
          [[ $model-$way-$cp == llama-nano-ulysses-8 ]] && continue  # 4 heads of keys and values
          for dp in 1 2; do
            for comm in thread mpi; do
              check context "$name" "$comm" $((cp * dp)) "$wanted" --model "$model" --precision "$precision" \
                --micro-batch 1 --cp "$cp" --context "$way" --recompute "${policies[dp == 1 ? 0 : 4]}"
            done
          done
        done
      done
    done
    # The last one's text and model.
    control "$name" 4 "$work/06_context_${model}_fp32.jsonl" --model "$model" --micro-batch 1 \
      --cp 4 --context ring --fault "skip:recv:$((steps - 1))"
  done
}

# A token takes three experts, whose sum has an order; full experts drop tokens.
routed=(--model moe-nano --layers 2 --experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05)
expert_parallel() {
  local name=22_expert_parallel wanted
  common=(--threads 1 --data "$work/text.txt" "${routed[@]}" --batch 16 --steps "$steps" --clip 1 --quiet)
  for precision in fp32 bf16; do
    wanted=$work/21_experts_$precision.jsonl
    alone "$wanted" --precision "$precision"
    for ep in 1 2 4 8; do
      for ((ranks = ep; ranks <= 8; ranks *= 2)); do
        for GA in 1 2; do
          for comm in thread mpi; do
            check experts "$name" "$comm" "$ranks" "$wanted" --precision "$precision" --ep "$ep" \
              --micro-batch $((16 / ranks / GA)) --recompute "${policies[GA == 1 ? 0 : 3]}"
          done
        done
      done
    done
  done
  control "$name" 4 "$work/21_experts_fp32.jsonl" --ep 2 --fault "skip:all_to_all:$((16 * steps - 1))"
}

# title TEXT: the first lines of a result.
title() {
  echo "# Same bits on every layout: $1 in full"
  echo
  echo "\`scripts/nightly.sh\`, commit $commit, on $machine; GCC $gcc." \
    "Each run takes $steps steps of \`$model\` with 32 sequences, AdamW and \`--clip 1\`. Its trace has" \
    "the loss, the gradient norm, the learning rate and a hash of all weights after every step. It is" \
    "compared, as text, with the trace of 06_checkpointing on one rank."
  echo
}

data_parallel_text() {
  title "data parallelism"
  echo "## Layouts"
  echo
  echo "1, 2, 4 and 8 ranks; threads and processes under \`mpirun\`; 1, 2 and 4 micro-steps; FP32" \
    "and BF16; backends cpu, and ref with \`${sizes[ref]}\`: 96 runs of each chapter."
  rows layouts "${chapters[@]}"
  echo "## Recomputation and precision"
  echo
  echo "\`--recompute\` ${policies[*]}; each in FP32, BF16 and FP16; 4 ranks as threads," \
    "2 micro-steps: 15 runs of each chapter."
  rows recompute "${chapters[@]}"
  echo "## Chapters that know one rank"
  echo
  echo "FP32 on the backend cpu, 1, 2 and 4 micro-steps: 3 runs of each chapter."
  rows single "${single[@]}"
  echo "## Ranks that share each sequence"
  echo
  echo "\`gpt2-124m\` and \`llama-nano\` with \`${long[*]}\`, 4 sequences, one at a time; 1, 2, 4 and 8" \
    "ranks a sequence in each of three ways, 1 and 2 shares of the batch; threads and processes;" \
    "FP32 and BF16: 184 runs."
  rows context 20_context_parallel
  echo "## Ranks that share experts"
  echo
  echo "\`${routed[*]}\`, 16 sequences, against 21_moe on one rank; 1, 2, 4 and 8 ranks for all" \
    "experts, up to 8 ranks in all; 1 and 2 micro-steps; threads and processes; FP32 and BF16: 80 runs."
  rows experts 22_expert_parallel
  echo "## Controls"
  echo
  echo "With one sum of gradients lost (\`--fault\`) the trace differs: $seen of $controls chapters."
  echo
  echo "$total runs and $controls controls: $failed failed."
}

# parts_of PP SCHEDULE: layers of nano in one part of a stage; 0 if they do not come out even.
parts_of() {
  local chunks=1
  [[ $2 == interleaved ]] && (($1 > 1)) && chunks=2
  echo $((8 % ($1 * chunks) == 0 ? 8 / ($1 * chunks) : 0))
}

model_parallel() {
  begin nightly_model_parallel.md 20 11 12
  local wanted=$work/06_fp32.jsonl variants=("")
  alone "$wanted"
  alone "$work/06_bf16.jsonl" --precision bf16
  if [[ -x $bin/ch11_tensor_parallel ]]; then
    "$bin/ch11_tensor_parallel" --help | grep -q -e --sequence-parallel && variants+=(--sequence-parallel)
    for variant in "${variants[@]}"; do
      for tp in 1 2 4 8; do
        for policy in "${policies[@]}"; do
          for comm in thread mpi; do
            # shellcheck disable=SC2086  # a variant may be no word at all
            check layouts 11_tensor_parallel "$comm" "$tp" "$wanted" $variant --micro-batch 8 \
              --recompute "$policy"
          done
        done
      done
    done
    control 11_tensor_parallel 4 "$wanted" --fault skip:all_reduce:3
  fi
  if [[ -x $bin/ch12_pipeline_parallel ]]; then
    for schedule in gpipe 1f1b interleaved zb-h1; do
      for pp in 1 2 4 8; do
        layers=$(parts_of "$pp" "$schedule")
        for policy in "${policies[@]}"; do
          ((layers == 0)) || [[ $layers == 1 && $policy == every:2 ]] && continue
          for precision in fp32 bf16; do
            for comm in thread mpi; do
              [[ $comm == mpi && $precision == bf16 ]] && continue
              check layouts 12_pipeline_parallel "$comm" "$pp" "$work/06_$precision.jsonl" \
                --pipeline "$schedule" --micro-batch 4 --recompute "$policy" --precision "$precision"
            done
          done
        done
      done
      control 12_pipeline_parallel 2 "$wanted" --pipeline "$schedule" --micro-batch 4 \
        --fault swap:recv:1
    done
  fi
  model_parallel_text >"$result"
  finish
}

model_parallel_text() {
  title "shared layers"
  echo "## Layouts"
  echo
  echo "\`--recompute\` ${policies[*]}; threads and processes under \`mpirun\`. Chapter 11 in FP32 on" \
    "1, 2, 4 and 8 ranks; chapter 12 in FP32, and as threads in BF16, on 1, 2, 4 and 8 stages in" \
    "each schedule, where the 8 layers come out even, with 8 micro-batches."
  rows layouts "${chapters[@]}"
  echo "## Controls"
  echo
  echo "With a sum lost or a message mixed up (\`--fault\`) the trace differs: $seen of $controls runs."
  echo
  echo "$total runs and $controls controls: $failed failed."
}

# meshes: "TP DP PP" of each that nano allows on up to 8 ranks, and one on 16.
meshes() {
  local tp dp pp
  for tp in 1 2 4 8; do
    for dp in 1 2 4 8; do
      for pp in 1 2 4 8; do
        ((tp * dp * pp <= 8)) && echo "$tp $dp $pp"
      done
    done
  done
  echo "2 4 2"
}

mesh_parallel() {
  begin nightly_mesh.md 20 13
  local wanted=$work/06_fp32.jsonl all mesh tp dp pp ranks flags schedule
  alone "$wanted"
  mapfile -t all < <(meshes)
  for mesh in "${all[@]}"; do
    read -r tp dp pp <<<"$mesh"
    ranks=$((tp * dp * pp))
    flags=(--tp "$tp" --dp "$dp" --pp "$pp" --micro-batch $((32 / dp / 4)))
    for schedule in gpipe 1f1b interleaved zb-h1; do
      (($(parts_of "$pp" "$schedule") == 0)) && continue
      check layouts 13_3d_parallel thread "$ranks" "$wanted" "${flags[@]}" --pipeline "$schedule"
    done
    check layouts 13_3d_parallel mpi "$ranks" "$wanted" "${flags[@]}"
    ((tp > 1)) && check layouts 13_3d_parallel thread "$ranks" "$wanted" "${flags[@]}" \
      --sequence-parallel --recompute selective
  done
  # Of each axis: a sum inside a block, a sum of gradients late in the run, a message.
  for fault in skip:all_reduce:3 skip:reduce_scatter:$((steps - 1)) swap:recv:1; do
    control 13_3d_parallel 8 "$wanted" --fault "$fault" --tp 2 --dp 2 --pp 2 --micro-batch 4
  done
  mesh_text >"$result"
  finish
}

mesh_text() {
  title "three axes"
  echo "## Layouts"
  echo
  echo "Every \`--tp\` x \`--dp\` x \`--pp\` of up to 8 ranks, and 2 x 4 x 2, each with 4 micro-batches." \
    "As threads: in each schedule where the 8 layers come out even, and with \`--sequence-parallel" \
    "--recompute selective\` where layers are shared. As processes under \`mpirun\`: in 1f1b."
  rows layouts "${chapters[@]}"
  echo "## Controls"
  echo
  echo "With a sum lost inside a block, a sum of gradients lost, or a message between stages mixed" \
    "up (\`--fault\`), the trace differs: $seen of $controls runs."
  echo
  echo "$total runs and $controls controls: $failed failed."
}

# Its four heads of keys and values are shared by two query heads each: tensor ranks are at most 4.
llama_parallel() {
  local chapter ranks GA comm policy precision variant schedule mesh tp dp pp wanted
  model=llama-nano
  begin nightly_llama.md 20 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19
  for precision in "${precisions[@]}"; do
    alone "$work/06_llama_$precision.jsonl" --precision "$precision" --loss-scale 1024
  done
  wanted=$work/06_llama_fp32.jsonl

  for chapter in "${chapters[@]}"; do
    for GA in 1 2 4; do
      check layouts "$chapter" thread 1 "$wanted" --micro-batch $((32 / GA))
    done
    common[1]=3
    check layouts "$chapter" thread 1 "$wanted" --micro-batch 8
    common[1]=1
    "$bin/ch$chapter" --help | grep -q -e --recompute || continue
    for precision in "${precisions[@]}"; do
      for policy in "${policies[@]}"; do
        check layouts "$chapter" thread 1 "$work/06_llama_$precision.jsonl" --precision "$precision" \
          --loss-scale 1024 --micro-batch 8 --recompute "$policy"
      done
    done
  done
  for chapter in $(built 07 08 09 10 15 16 18); do
    for ranks in 2 4 8; do
      for GA in 1 4; do
        for comm in thread mpi; do
          check layouts "$chapter" "$comm" "$ranks" "$wanted" --micro-batch $((32 / ranks / GA))
        done
      done
    done
  done
  for tp in 2 4; do
    for variant in "" --sequence-parallel; do
      for comm in thread mpi; do
        # shellcheck disable=SC2086  # a variant may be no word at all
        check layouts 11_tensor_parallel "$comm" "$tp" "$wanted" $variant --micro-batch 8 \
          --recompute selective
      done
    done
  done
  for schedule in gpipe 1f1b interleaved zb-h1; do
    for pp in 2 4 8; do
      (($(parts_of "$pp" "$schedule") == 0)) && continue
      for comm in thread mpi; do
        check layouts 12_pipeline_parallel "$comm" "$pp" "$wanted" --pipeline "$schedule" --micro-batch 4
      done
    done
  done
  while read -r tp dp pp; do
    ((tp > 4)) && continue
    flags=(--tp "$tp" --dp "$dp" --pp "$pp" --micro-batch $((32 / dp / 4)))
    check layouts 13_3d_parallel thread $((tp * dp * pp)) "$wanted" "${flags[@]}"
    check layouts 13_3d_parallel mpi $((tp * dp * pp)) "$wanted" "${flags[@]}" --pipeline zb-h1
    ((tp > 1)) && check layouts 13_3d_parallel thread $((tp * dp * pp)) "$wanted" "${flags[@]}" \
      --sequence-parallel --recompute selective
  done < <(meshes)
  control 07_ddp 4 "$wanted" --fault "skip:all_reduce:$((steps - 1))"
  control 11_tensor_parallel 4 "$wanted" --fault skip:all_reduce:3
  control 12_pipeline_parallel 2 "$wanted" --micro-batch 4 --fault swap:recv:1
  llama_text >"$result"
  finish
  model=nano
}

llama_text() {
  title "LLaMA's block"
  echo "One rank: 1, 2 and 4 micro-steps, 3 threads, and from 06 on \`--recompute\` ${policies[*]} in" \
    "FP32, BF16 and FP16. All others as threads and as processes. Data parallelism: 2, 4 and 8 ranks" \
    "with 1 and 4 micro-steps. Shared layers: 2 and 4 ranks, with \`--sequence-parallel\`, too." \
    "Stages: 2, 4 and 8 in each schedule. Meshes: every one of up to 8 ranks, and 2 x 4 x 2, whose" \
    "\`--tp\` is at most 4."
  rows layouts "${chapters[@]}"
  echo "With a sum or a message lost or mixed up (\`--fault\`) the trace differs: $seen of $controls runs."
  echo
  echo "$total runs and $controls controls: $failed failed."
}

clients() {
  local client
  local -A result=([transformers]=clients.md [llama]=clients_llama.md [mixtral]=clients_mixtral.md)
  for client in transformers llama mixtral; do
    python3 -B "tests/clients/test_$client.py" --build "$build" --install \
      --result "docs/results/${result[$client]}"
    case $? in
      0) ;;
      77) echo "nightly.sh: client $client not tried" ;;
      *) ((all_failed += 1)) ;;
    esac
  done
}

every_mutant() {
  local lab folder
  folder=$(cd "$build" && pwd) || exit 2
  cmake --build "$build" --target labs >/dev/null || { ((all_failed += 1)); return; }
  for lab in labs/[0-9]*_*/; do
    lab=$(basename "$lab")
    if (cd labs && python3 -B -m engine.selftest "$folder" "$lab" --every-mutant); then
      echo "passed  $lab: the stub, the reference and every mutant"
    else
      ((all_failed += 1))
    fi
  done
}

# bare TREE FILE: what a machine says that has a GPU's libraries, and nothing else.
bare() {
  # shellcheck disable=SC2016  # the inner shell is to read these
  unshare --mount --net bash -c '
    mkdir -p "$1/usr/local/cuda" && mount --rbind -o ro "$(realpath /usr/local/cuda)" "$1/usr/local/cuda" &&
      mount -t proc proc "$1/proc" && cp "$2" "$1/tmp/ladder.tar" && tar -C "$1/tmp" -xf "$2" scripts || exit
    exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /tmp/scripts/gpu_check.sh \
      --run /tmp/ladder.tar --out /tmp/found' - "$1" "$2" 2>&1
}

pack() {
  local tree=build/bare said status=0
  if ((EUID != 0)) || ! [[ -d /usr/local/cuda/lib64 ]] || ! command -v debootstrap >/dev/null; then
    echo "nightly.sh: part pack not tried: it wants root, a toolkit in /usr/local/cuda, and debootstrap"
    return
  fi
  rm -rf "$tree"
  if ! debootstrap --variant=minbase --include=python3 bookworm "$tree" >/dev/null; then
    echo "nightly.sh: part pack not tried: no tree of Debian"
    return
  fi
  scripts/gpu_check.sh --pack build/bare.tar || { ((all_failed += 1)); return; }
  said=$(bare "$tree" build/bare.tar) || status=$?
  if ((status == 2)) && [[ $said == "gpu_check.sh: no GPU here: nvidia-smi finds none" ]]; then
    echo "passed  a pack comes as far as a machine without a GPU lets it: $said"
  else
    ((all_failed += 1))
    echo "FAILED  a pack on a bare machine: status $status, $said"
  fi
}

# Of these two labs are the submissions of tests/labs/cheats.py.
packed_autograders() {
  local lab base
  base=$(mktemp -d)
  for lab in 08 12x; do
    labs/autograder.sh "$lab" "$base/$lab.zip" >/dev/null &&
      python3 -B tests/labs/cheats.py "$base/$lab.zip" "$lab" || ((all_failed += 1))
  done
  rm -rf "$base"
}

for part in "${parts[@]}"; do
  case $part in
    clients) clients ;;
    torture) scripts/torture.sh --build "$build" || ((all_failed += 1)) ;;
    fuzz) scripts/fuzz.sh 600 || ((all_failed += 1)) ;;
    readmes)
      scripts/readme_commands.py --build "$build" || ((all_failed += 1))
      if command -v doxygen >/dev/null; then
        { cmake "$build" >/dev/null && cmake --build "$build" --target docs; } || ((all_failed += 1))
      fi
      ;;
    labs) every_mutant; packed_autograders ;;
    machines) scripts/machines.sh || ((all_failed += 1)) ;;
    pack) pack ;;
    *) "${part}_parallel" ;;
  esac
done
((all_failed == 0))
