#!/usr/bin/env bash
# What takes too long for every day, part by part.
#
#   layouts   each three values of three axes of each chapter in tests/layouts.txt, on threads and under
#             mpirun: the bits, files and validation of its root, and bytes as predicted; all meshes of 16
#             ranks of chapter 33. May be ended: what passed on a commit is not run again
#   clients   tests/clients: Hugging Face's transformers and other programs, which it installs in
#             build/clients, read what we save, and we read what they save
#   torture   scripts/torture.sh: interrupted saves, disks that fail
#   fuzz      scripts/fuzz.sh, ten minutes for each kind of file
#   readmes   scripts/readme_commands.py: the commands of READMEs; and where Doxygen is, the
#             documentation site, in which each link must lead somewhere
#   labs      every mutant of each lab fails at its own gate; submissions that cheat get no more of a
#             packed autograder than they deserve
#   left_out  what the CI leaves out: all of debug and tsan; of cpu short layouts,
#             LLaMA on `ref` beside PyTorch's numbers, and the longest emulated products; Clang 16
#             over tests, labs and bench; and, where there is a toolkit, code for all kinds of GPUs
#   types     no type has two definitions: all chapters, optimized at link time, with -Wodr
#   machines  scripts/machines.sh: other compilers, arm64 under qemu, Debian 13; as root
#
#   scripts/nightly.sh              all of it, with the programs of build/cpu
#   scripts/nightly.sh --part labs  one of the parts
#   scripts/nightly.sh --build DIR  with the programs of another build
#
# Writes docs/results/nightly_layouts.md, clients*.md, torture.md and machines.md.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/nightly.py" "$@"
