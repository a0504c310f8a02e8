#!/usr/bin/env bash
# Other machines, tried on this one (x86-64, Debian, root), in four parts. Hours on two cores.
#
#   compilers  chapters 04 and 06 by GCC and Clang, at -O1 and -O3, for AVX2 and for this machine,
#              with libc++, and with the ref kernels alone: each with the bits of
#              tests/golden/bits.json
#   arm64      cross-compiled, with the libraries of a tree of Debian 12 for arm64, run by qemu:
#              tests of kernels, gradients, and whole runs with those bits
#   debian13   a tree of Debian 13, in it README's two commands on a fresh clone of HEAD, the second
#              one with all tests of the preset cpu; and other compilers
#   debian13_debug  in that tree all tests of the preset debug
#
#   scripts/machines.sh                  all of it
#   scripts/machines.sh --part arm64     one of the parts
#   scripts/machines.sh --folder DIR     trees and builds lie in DIR, by default build/machines
#
# Installs what it needs from Debian's packages. Prints a line for each trial. Each part has a section
# of docs/results/machines.md; a part that is tried again writes its section anew.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

all=(compilers arm64 debian13 debian13_debug)
folder=build/machines parts=("${all[@]}")
while (($# > 0)); do
  if [[ $1 == --folder && -n ${2-} ]]; then
    folder=$2
  elif [[ $1 == --part && -n ${2-} && " ${all[*]} " == *" $2 "* ]]; then
    parts=("$2")
  else
    echo "machines.sh: '$*'; legal: --folder DIR, --part $(IFS='|' && echo "${all[*]}")" >&2
    exit 2
  fi
  shift 2
done
((EUID == 0)) || { echo "machines.sh: it makes trees of Debian and installs packages: legal as root" >&2; exit 2; }
mkdir -p "$folder" || exit 2
folder=$(realpath "$folder") failed=0
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- kernels common chapters || commit+=", with changes"

install() {
  apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@" </dev/null >/dev/null
}

# tell STATUS NAME WORDS: one trial.
tell() {
  local verdict=passed
  (($1 == 0)) || { verdict=FAILED; ((failed += 1)); }
  echo "$verdict  $2: $3"
  echo "| $2 | $verdict | $3 |" >>"$lines"
}

# build NAME TARGETS -- FLAGS of CMake. What compilers say goes to NAME.log.
build() {
  local name=$1 targets=()
  shift
  while [[ $1 != -- ]]; do targets+=("$1"); shift; done
  shift
  cmake -S . -B "$folder/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O3 \
    -DLADDER_CUDA=OFF -DLADDER_BENCH=OFF "$@" >"$folder/$name.log" 2>&1 &&
    cmake --build "$folder/$name" --target "${targets[@]}" >>"$folder/$name.log" 2>&1
}

# bits NAME WHAT flags of bits.py: the programs of a build.
bits() {
  local name=$1 what=$2 said status=0
  shift 2
  said=$(python3 -B scripts/bits.py "$folder/$name/bin" "$@") || status=1
  grep '^FAILED' <<<"$said"
  tell $status "$what" "$(tail -n 1 <<<"$said"), $(grep -c 'warning:' "$folder/$name.log") warnings"
}

# way NAME COMPILER WHAT flags of CMake.
way() {
  local name=$1 compiler=$2 what=$3 only=(--some)
  shift 3
  if ! command -v "$compiler" >/dev/null; then
    echo "skipped $what: no $compiler"
    echo "| $what | not tried | no $compiler |" >>"$lines"
    return
  fi
  # Without precompiled headers: with them GCC 12 takes all memory at -O1.
  if ! build "$name" ch04_clipping ch06_checkpointing -- -DCMAKE_CXX_COMPILER="$compiler" \
      -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DBUILD_TESTING=OFF -DLADDER_ONLY_CHAPTERS='^0[46]' "$@"; then
    tell 1 "$what" "does not build, see $folder/$name.log"
    return
  fi
  [[ $name == ref_alone ]] && only+=(--backend ref)
  bits "$name" "$what" "${only[@]}"
}

compilers() {
  local gcc
  gcc="GCC $(g++ -dumpversion)"
  install clang-16 libomp-16-dev clang-19 libc++-19-dev libc++abi-19-dev || echo "no other compilers here"
  way gcc_O3 g++ "$gcc, -O3, this machine"
  way gcc_O1 g++ "$gcc, -O1, this machine" -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DLADDER_UNITY=OFF
  way gcc_avx2 g++ "$gcc, -O3, AVX2" -DLADDER_MARCH=x86-64-v3
  way ref_alone g++ "$gcc, ref alone, any x86-64" -DLADDER_CPU_TABLE=OFF -DLADDER_UNITY=OFF
  way clang16 clang++-16 "Clang 16, -O3, this machine"
  way clang16_O1 clang++-16 "Clang 16, -O1, AVX2" -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DLADDER_MARCH=x86-64-v3
  way clang19 clang++-19 "Clang 19, -O3, this machine"
  # Debian's fmt is compiled for libstdc++: its headers are taken alone. std::jthread is experimental.
  way clang19_libcxx clang++-19 "Clang 19 with libc++, -O3, AVX2" -DLADDER_MARCH=x86-64-v3 \
    -DLADDER_MPI=OFF -DCMAKE_CXX_FLAGS="-stdlib=libc++ -fexperimental-library -DFMT_HEADER_ONLY"
}

arm64() {
  local tree=$folder/arm64_tree
  local packages=libc6-dev,linux-libc-dev,libstdc++-12-dev,libgcc-12-dev,libboost-context-dev
  packages+=,libboost1.74-dev,libboost-context1.74-dev
  packages+=,libgtest-dev,libfmt-dev,libxxhash-dev,libhwy-dev,libcli11-dev,nlohmann-json3-dev,librandom123-dev
  install debootstrap g++-aarch64-linux-gnu qemu-user-static || { tell 1 arm64 "no cross compiler"; return; }
  if [[ ! -e $tree/done ]]; then
    # Unpacked, not configured: that would take qemu long, and files are all that is needed.
    debootstrap --foreign --arch=arm64 --variant=minbase --include="$packages" bookworm "$tree" >"$folder/arm64_tree.log" 2>&1 &&
      for deb in "$tree"/var/cache/apt/archives/*.deb; do dpkg -x "$deb" "$tree"; done && touch "$tree/done" ||
      { tell 1 arm64 "no tree, see $folder/arm64_tree.log"; return; }
  fi
  local programs=(ch01_sgd ch04_clipping ch06_checkpointing ch08_zero1 ch11_tensor_parallel
    ch12_pipeline_parallel ch13_3d_parallel)
  local tests=(kernels_unit kernels_same_bits kernels_operations_cpu kernels_cpu kernels_cpu_pack kernels_cpu_products_no_pairs
    kernels_cpu_team kernels_gradients)
  if ! build arm64 "${programs[@]}" "${tests[@]}" -- --toolchain cmake/arm64.cmake -DLADDER_ARM64_TREE="$tree" -DLADDER_MPI=OFF; then
    tell 1 "arm64" "does not build, see $folder/arm64.log"
    return
  fi
  local name said status
  for name in "${tests[@]}"; do
    status=0
    said=$(qemu-aarch64-static -L "$tree" "$folder/arm64/tests/$name" 2>&1) || status=1
    ((status == 0)) || echo "$said" >"$folder/$name.arm64.log"
    tell $status "arm64, NEON, qemu: $name" "$(grep -oE '\[  PASSED  \].*|[0-9]+ FAILED TEST.*' <<<"$said" | xargs)"
  done
  bits arm64 "arm64, NEON, GCC $(aarch64-linux-gnu-g++ -dumpversion), qemu: whole runs" --launcher "qemu-aarch64-static -L $tree"
}

# in_tree TREE COMMAND: as root of a tree of Debian.
in_tree() {
  chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash -c "$2"
}

# A tree of Debian 13 with a fresh clone of HEAD.
clone_in_debian13() {
  local tree=$folder/debian13 name
  install debootstrap || { tell 1 "Debian 13" "no debootstrap"; return 1; }
  if [[ ! -x $tree/usr/bin/apt-get ]]; then
    debootstrap --variant=minbase trixie "$tree" >"$folder/debian13.log" 2>&1 ||
      { tell 1 "Debian 13" "no tree, see $folder/debian13.log"; return 1; }
  fi
  cp /etc/resolv.conf "$tree/etc/resolv.conf"
  for name in proc sys dev; do
    mountpoint -q "$tree/$name" || { mount --rbind "/$name" "$tree/$name" && mount --make-rslave "$tree/$name"; }
  done
  trap 'umount -R -l '"'$tree/proc' '$tree/sys' '$tree/dev'" EXIT
  rm -rf "$tree/root/ladder"
  git clone -q --no-hardlinks . "$tree/root/ladder"
}

# script_of_debian13 NAME WORDS: a script of the clone.
script_of_debian13() {
  local tree=$folder/debian13 log=$folder/debian13_${1%.sh}_${2-}.log status=0
  # The clone has no remote that the tree could reach, nor needs one.
  in_tree "$tree" "cd /root/ladder && bash scripts/$*" >"$log" 2>&1 </dev/null || status=1
  tell $status "Debian 13, GCC $(in_tree "$tree" "g++ -dumpfullversion"): scripts/$*" "$(tail -n 1 "$log" | cut -c1-200)"
}

debian13_debug() {
  clone_in_debian13 || return
  script_of_debian13 test.sh debug
}

debian13() {
  local tree=$folder/debian13 status
  clone_in_debian13 || return
  script_of_debian13 demo.sh
  script_of_debian13 test.sh cpu
  # Another folder than where programs of another system lie.
  status=0
  in_tree "$tree" "cd /root/ladder && python3 -B scripts/bits.py build/cpu/bin" >"$folder/debian13_bits.log" 2>&1 || status=1
  tell $status "Debian 13: whole runs" "$(tail -n 1 "$folder/debian13_bits.log")"
  compilers_of_debian13 "$tree"
}

# GCC 13, which is Ubuntu 24.04's, and Clang with the library of GCC 14. Debian's fmt asks for the
# library of GCC 14: with GCC 13 its headers are taken alone.
compilers_of_debian13() {
  local tree=$1 compiler packages more status log
  for compiler in g++-13 clang++-19; do
    packages=$compiler more=-DFMT_HEADER_ONLY status=0 log=$folder/debian13_$compiler.log
    [[ $compiler == clang* ]] && packages="clang-19 libomp-19-dev" more=""
    in_tree "$tree" "apt-get -qq install --yes --no-install-recommends $packages && cd /root/ladder &&
      cmake -B build/$compiler -G Ninja -DCMAKE_CXX_COMPILER=$compiler -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CXX_FLAGS_RELEASE=-O3 -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DLADDER_BENCH=OFF \
        -DBUILD_TESTING=OFF -DLADDER_CUDA=OFF -DLADDER_ONLY_CHAPTERS='^0[46]' \
        -DCMAKE_CXX_FLAGS=$more &&
      cmake --build build/$compiler --target ch04_clipping ch06_checkpointing &&
      python3 -B scripts/bits.py build/$compiler/bin --some" >"$log" 2>&1 </dev/null || status=1
    tell $status "Debian 13, $compiler, -O3, this machine" \
      "$(tail -n 1 "$log" | cut -c1-200), $(grep -c 'warning:' "$log") warnings"
  done
}

page=docs/results/machines.md
machine=$(python3 -B -c 'import sys; sys.path.insert(0, "scripts")
from measure import machine; print(machine())')
sections=$(mktemp -d)
# section PART: what the page says of it.
section() { sed -n "/^## $1\$/,/^## /p" "$page" | sed '1p;/^## /d'; }

for part in "${all[@]}"; do
  { section "$part"; echo; } >"$sections/$part"
done
for part in "${parts[@]}"; do
  lines=$sections/$part
  printf '## %s\n\nPrograms of %s, on %s.\n\n|  |  |  |\n|---|---|---|\n' "$part" "$commit" "$machine" >"$lines"
  "$part"
  echo >>"$lines"
done
{
  echo "# Other machines"
  echo
  echo "What \`scripts/machines.sh\` tried. A run with the golden bits is one whose last step has the loss," \
    "gradient norm and hash of all weights of \`tests/golden/bits.json\`."
  echo
  cat -s "${all[@]/#/$sections/}" | sed '${/^$/d}'
} >"$page.new" && mv "$page.new" "$page"
rm -r "$sections"
((failed == 0))
