#!/usr/bin/env bash
# What takes too long for every day, part by part. In the first four, same bits on every layout: each
# run's trace must be that of 06 on one rank, line by line (of 21, where there are experts).
#
#   data      chapters 07 to 10, 15, 16, 18 and 20 on 1, 2, 4 and 8 ranks, threads and processes, with
#             1, 2 and 4 micro-steps, in FP32 and BF16, on cpu and ref; and every recomputation in every
#             precision; chapters 14, 17, 19, 21 and 26, which know one rank, with 1, 2 and 4
#             micro-steps; chapters 27 to 30 as they feed, save and watch a run, and 30 with every
#             number of replicas; chapter 20 with ranks that split each sequence, at every degree in
#             every way; and chapter 22 with ranks that split experts, at every degree, against 21 on
#             one rank
#   model     chapter 11 at every degree, chapter 12 at every degree in every schedule, each with every
#             recomputation, threads and processes: FP32, and chapter 12 as threads in BF16, too
#   mesh      chapter 13 on every mesh of up to 8 ranks and one of 16, in every schedule and with
#             sequence parallelism as threads, in 1f1b as processes, too
#   llama     the same of llama-nano in every chapter that has an exact trace: micro-steps and threads,
#             ranks and ZeRO, shared layers and sequences, stages, meshes, recomputation
#   clients   Hugging Face's transformers, which it installs in build/clients, read what we save, and
#             we read what they save
#   torture   scripts/torture.sh: interrupted saves, disks that fail
#   fuzz      scripts/fuzz.sh, ten minutes for each kind of file
#   readmes   scripts/readme_commands.py: the commands of READMEs; and where Doxygen is, the
#             documentation site, in which each link must lead somewhere
#   labs      every mutant of each lab fails at its own gate; submissions that cheat get no more of a
#             packed autograder than they deserve
#   left_out  what the CI leaves out: all of debug and tsan; of cpu equal runs of `tiny`, meshes on
#             `ref`, LLaMA on `ref` beside PyTorch's numbers, and the longest emulated products; and,
#             where there is a toolkit, code for all kinds of GPUs
#   types     no type has two definitions: all chapters, optimized at link time, with -Wodr
#   machines  scripts/machines.sh: other compilers, arm64 under qemu, Debian 13; as root
#   pack      scripts/gpu_check.sh --pack, then --run in a tree of Debian without a network, which has
#             Python and the toolkit's libraries: it must come as far as "no GPU here"; as root
#
#   scripts/nightly.sh              all of it, with the programs of build/cpu
#   scripts/nightly.sh --part model one of the parts
#   scripts/nightly.sh --build DIR  with the programs of another build
#
# Prints a line for each run, and writes docs/results/nightly_*.md, clients*.md, torture.md and
# machines.md. A run of the first four parts that was done before, by the same programs, is not done
# again: what has been found lies in runs/nightly.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/nightly.py" "$@"
