#!/usr/bin/env bash
# Everything that takes a GPU, within eight minutes: tests, short runs of each chapter beside the CPU,
# ranks that share the GPU, by NCCL too, the speed of a step and of each operation beside PyTorch,
# compute-sanitizer and ncu. A GPU's minutes cost, so what needs none can be done elsewhere:
#
#   scripts/gpu_check.sh --pack FILE   builds here, where no GPU need be, and makes one archive
#   scripts/gpu_check.sh --run FILE    measures with it, on a machine that needs no more than bash,
#                                      tar, Python 3, the driver, and cuBLASLt and NCCL of the toolkit
#                                      or of PyTorch. Without a checkout there:
#                                      tar -xf FILE scripts && bash scripts/gpu_check.sh --run FILE
#   scripts/gpu_check.sh               both on one machine, without an archive
#
# --pack takes --architectures LIST (as CMAKE_CUDA_ARCHITECTURES; 90-real) and --march NAME
# (x86-64-v3). --run, and the call without either, take
#   --out DIR      where results.md and details.txt are written, part by part (runs/gpu_check)
#   --only PARTS   some of kernels,chapters,ranks,nccl,speed,decode,operations,peers,sanitizers,counters
#   --limit N      seconds for everything (480)
# Status 0 if nothing failed, 1 if something did, 2 if a call is wrong or there is nothing to test on.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
build=$root/build/cuda

fail() {
  echo "gpu_check.sh: $*" >&2
  exit 2
}

# needs PROGRAM...: ends at once where one is missing.
needs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || fail "missing here: $program"
  done
}

# ---- what is built ----

# Test programs with label cuda, also those under mpirun, the chapters and the benchmark of
# operations, as far as CMake knows them.
targets() {
  {
    grep -rhoP --include=CMakeLists.txt '^ *ladder_test\(\K\w+(?= LABEL cuda )' "$root/tests"
    sed -nE 's/^([0-9]{2}_\w+) .*/ch\1/p' "$root/scripts/chapters.txt"
    printf '%s\n' comm_nccl_tests bench_cuda bench_attention_ladder
  } | grep -xFf <(ninja -C "$build" -t targets all | sed 's/:.*//')
}

# compile FLAG...: warnings of another compiler than CI's are no matter here.
compile() {
  local nvcc wanted
  for nvcc in nvcc "${CUDA_PATH-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    command -v "$nvcc" >/dev/null && break
  done
  needs "$nvcc" cmake ninja c++ python3
  export CCACHE_BASEDIR=$root
  (
    cd "$root"
    bash scripts/text.sh runs/bible.txt
    cmake --preset cuda "$@"
    mapfile -t wanted < <(targets)
    nice -n 10 cmake --build "$build" --parallel "$(nproc)" --target "${wanted[@]}"
  ) || fail "the build failed"
  built="Commit $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown), built with \`${*}\`,"
  built+=" $("$nvcc" --version | grep -oE 'release [0-9.]+, V[0-9.]+'), $(c++ --version | head -n 1)."
}

# ---- what is carried ----

# What every machine has, and what is too large to be carried.
not_carried='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libcuda|libcublas|libcublasLt|libnccl)[.-]'

# libraries FOLDER FILE...: copies what the files load.
libraries() {
  local folder=$1 name path
  shift
  mkdir -p "$folder"
  { ldd "$@" 2>/dev/null || true; } | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    while read -r name path; do
      [[ $name =~ $not_carried ]] || cp -Ln "$path" "$folder/$name"
    done
}

# Open MPI as its own variables find it elsewhere, as OPAL_PREFIX: for ranks on one machine, without
# the parts for networks that few machines have.
open_mpi() {
  local to=$1 libraries_to=$2 where folder part
  command -v ompi_info >/dev/null || { echo "no Open MPI here: ranks will be threads only"; return 0; }
  mkdir -p "$to/bin"
  cp -L "$(command -v orted)" "$to/bin/orted"
  cp -L "$(command -v mpirun)" "$to/bin/mpirun"
  libraries "$libraries_to" "$to"/bin/*
  for where in pkglibdir pkgdatadir sysconfdir; do
    folder=$(ompi_info --path "$where" --parsable | cut -d: -f3)
    [[ -d $folder ]] || continue
    mkdir -p "$to${folder#/usr}"
    cp -rL "$folder/." "$to${folder#/usr}/"
  done
  # Those of PMIx lie beside.
  for folder in /usr/lib/*/pmix*/lib/pmix; do
    [[ -d $folder ]] || continue
    mkdir -p "$to${folder#/usr}"
    cp -rL "$folder/." "$to${folder#/usr}/"
  done
  while IFS= read -r -d '' part; do
    if ldd "$part" | grep -qE 'libfabric|libuc[pst]|libpsm|libibverbs|librdmacm|not found'; then
      rm "$part"
    else
      libraries "$libraries_to" "$part"
    fi
  done < <(find "$to" -name '*.so' -print0)
}

# gather FOLDER: all that is carried, as the tree has it.
gather() {
  local to=$1 name program
  mkdir -p "$to"/build/cuda/{bin,tests} "$to"/{runs,tests/common/comm,bench}
  for name in $(targets); do
    for program in "$build"/{bin,tests}/"$name"; do
      [[ ! -x $program ]] || strip -o "$to${program#"$root"}" "$program"
    done
  done
  libraries "$to/lib" "$to"/build/cuda/{bin,tests}/*
  open_mpi "$to/mpi" "$to/lib"
  cp "$root/runs/bible.txt" "$to/runs/"
  cp "$root/tests/common/comm/nccl.sh" "$to/tests/common/comm/"
  cp -r "$root"/bench/{results.py,peers} "$to/bench/"
  mkdir "$to/scripts"
  cp "$root"/scripts/{measure,marked}.py "$to/scripts/"
  echo "$built" >"$to/built"
}

# pack FILE ARCHITECTURES MARCH. In the archive lie these scripts, zstd, and a second archive, which
# zstd packs well: the programs have most of their code in common.
pack() {
  local file=$1 work
  needs zstd tar strip ldd git
  [[ ! -d $file && -d $(dirname "$file") ]] || fail "--pack $file: legal is a file in a folder that is there"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work' '$file.part'" EXIT
  compile "-DCMAKE_CUDA_ARCHITECTURES=$2" "-DLADDER_MARCH=$3"
  gather "$work/tree"
  mkdir -p "$work/pack"/{scripts,zstd}
  cp "$here"/gpu_{check.sh,measure.py,runs.py} "$work/pack/scripts/"
  cp -L "$(command -v zstd)" "$work/pack/zstd/"
  libraries "$work/pack/zstd" "$work/pack/zstd/zstd"
  tar -C "$work/tree" --sort=name -cf - . |
    nice -n 10 zstd -q -T0 -12 --long=29 -o "$work/pack/tree.tar.zst"
  tar -C "$work/pack" -cf "$file.part" scripts zstd tree.tar.zst
  mv "$file.part" "$file"
  echo "packed: $file, $(du -m "$file" | cut -f1) MB, of $(du -sm "$work/tree" | cut -f1)"
}

# ---- what is run ----

# run FILE ARGUMENT...
run() {
  local file=$1 work status=0
  shift
  needs python3 tar
  python3 -B "$here/gpu_measure.py" --check-arguments "$@" || exit 2
  [[ -f $file ]] || fail "--run $file: no such file"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work'" EXIT
  tar -C "$work" -xf "$file" zstd tree.tar.zst 2>/dev/null || fail "--run $file: not what --pack makes"
  mkdir "$work/tree"
  LD_LIBRARY_PATH=$work/zstd "$work/zstd/zstd" -q -dc --long=29 "$work/tree.tar.zst" 2>/dev/null |
    tar -C "$work/tree" -xf - 2>/dev/null || fail "--run $file: it is damaged, or there is no room for it"
  rm "$work/tree.tar.zst"
  python3 -B "$here/gpu_measure.py" --root "$work/tree" --built "$(cat "$work/tree/built")" "$@" ||
    status=$?
  exit "$status"
}

# check ARGUMENT...: with a build for the GPU of this machine.
check() {
  needs python3
  python3 -B "$here/gpu_measure.py" --check-arguments "$@" || exit 2
  command -v nvidia-smi >/dev/null || fail "no GPU here: nvidia-smi finds none"
  compile -DCMAKE_CUDA_ARCHITECTURES=native -DCMAKE_CXX_FLAGS=-w -DCMAKE_CUDA_FLAGS=-w
  python3 -B "$here/gpu_measure.py" --built "$built" "$@"
}

main() {
  local architectures=90-real march=x86-64-v3 file=${2-}
  case ${1-} in
    --pack | --run) [[ -n $file && $file != --* ]] || fail "$1 takes the name of a file" ;;&
    --run)
      shift 2
      run "$file" "$@"
      ;;
    --pack)
      shift 2
      while (($#)); do
        [[ $# -ge 2 && -n $2 ]] || fail "$1 takes a value"
        case $1 in
          --architectures) architectures=$2 ;;
          --march) march=$2 ;;
          *) fail "$1; --pack FILE takes --architectures LIST and --march NAME" ;;
        esac
        shift 2
      done
      pack "$file" "$architectures" "$march"
      ;;
    *) check "$@" ;;
  esac
}

# Sourced, it only defines its parts.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
