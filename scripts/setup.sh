#!/usr/bin/env bash
# Installs what building and testing need, from Debian's packages.
#
#   scripts/setup.sh         compilers, libraries, the text, charts
#   scripts/setup.sh --all   also documentation, clang-tidy, the peers of benchmarks, and what the
#                            clients of scripts/nightly.sh stand on
set -euo pipefail

build=(g++ cmake ninja-build pkg-config ccache git)
libraries=(libhwy-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev librandom123-dev
  libboost-context-dev)
mpi=(libopenmpi-dev openmpi-bin)
tests=(libgtest-dev libbenchmark-dev clang-format python3 bible-kjv strace python3-clang-16)
charts=(python3-matplotlib)
extras=(doxygen doxygen-awesome-css graphviz libjs-mathjax python3-torch python3-venv
  libopenblas-dev libdnnl-dev clang-tidy-16 iproute2)

wanted=("${build[@]}" "${libraries[@]}" "${mpi[@]}" "${tests[@]}" "${charts[@]}")
case "${1-}" in
  "") ;;
  --all) wanted+=("${extras[@]}") ;;
  *) echo "setup.sh: unknown argument '$1'; legal: --all" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null; then
  echo "setup.sh: no apt-get here; install what matches Debian's: ${wanted[*]}" >&2
  exit 2
fi

installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}
missing=()
for package in "${wanted[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#wanted[@]} packages are here"
  exit 0
fi

sudo=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: neither root nor sudo; as root: apt-get install ${missing[*]}" >&2
    exit 2
  fi
  sudo=(sudo)
fi
# Another apt may hold the lock for a while, as on a machine that has just started.
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)

echo "setup: installing ${missing[*]}"
"${apt[@]}" update </dev/null
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null >/dev/null
echo "setup: done"
