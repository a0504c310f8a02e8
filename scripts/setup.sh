#!/usr/bin/env bash
# Installs what building and testing need, from the packages of Debian 12, Debian 13 or Ubuntu 24.04
# (docs/machines.md says which of them was tried).
#
#   scripts/setup.sh         compilers, libraries, the text, charts
#   scripts/setup.sh --all   also documentation, clang-tidy, libraries that benchmarks compare with,
#                            what the clients of scripts/nightly.sh stand on, and Chromium, in
#                            which the planner's page is tested
#   scripts/setup.sh --peers also PyTorch from PyPI in build/peers, some gigabytes: bench/peers/
set -euo pipefail

build=(g++ cmake ninja-build pkg-config ccache git)
libraries=(libhwy-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev
  librandom123-dev libboost-context-dev)
mpi=(libopenmpi-dev openmpi-bin)
tests=(libgtest-dev libbenchmark-dev clang-format lld python3 bible-kjv strace)
charts=(python3-matplotlib)
extras=(doxygen doxygen-awesome-css graphviz libjs-mathjax python3-torch python3-venv
  libopenblas-dev libdnnl-dev iproute2)
# torch.compile builds against Python's headers.
venv=(python3-venv python3-dev)

all="" peers=""
for word; do
  case $word in
    --all) all=1 ;;
    --peers) peers=1 ;;
    *) echo "setup.sh: unknown argument '$word'; legal: --all, --peers" >&2; exit 2 ;;
  esac
done

# ID and VERSION_ID: "debian 12".
system=$(. "/etc/os-release" 2>/dev/null && echo "${ID-} ${VERSION_ID-}") || system=""
case "$system" in
  # Versions that scripts/tidy.sh and tests/house/clang_syntax.py were written for.
  "debian 12") tests+=(clang-16) extras+=(clang-tidy-16 chromium) ;;
  "debian 13") extras+=(chromium) ;;
  "ubuntu 24.04") ;;  # its Chromium is no package
  *)
    if command -v apt-get >/dev/null; then
      echo "setup: this is '${system:-unknown}'; the names of packages are those of Debian 12, Debian 13 and Ubuntu 24.04"
    fi
    ;;
esac
if ! command -v apt-get >/dev/null; then
  echo "setup.sh: no apt-get here, so nothing is installed. By hand: a C++20 compiler (GCC 12 or Clang 16, or
newer), CMake 3.22, Ninja, pkg-config, Python 3; Highway, CLI11, nlohmann-json, fmt, xxHash, Random123,
Boost.Context, GoogleTest; for more than threads Open MPI, for benchmarks Google Benchmark. Then
cmake --preset cpu && cmake --build --preset cpu. Names of packages for Fedora and Homebrew (not tried):
  dnf install gcc-c++ cmake ninja-build pkgconf-pkg-config python3 highway-devel cli11-devel json-devel
    fmt-devel xxhash-devel Random123-devel boost-devel gtest-devel openmpi-devel
    google-benchmark-devel
  brew install gcc cmake ninja pkg-config python highway cli11 nlohmann-json fmt xxhash random123 boost
    googletest open-mpi google-benchmark" >&2
  exit 2
fi

wanted=("${build[@]}" "${libraries[@]}" "${mpi[@]}" "${tests[@]}" "${charts[@]}")
[[ -z $all ]] || wanted+=("${extras[@]}")
[[ -z $peers ]] || wanted+=("${venv[@]}")
installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}
missing=()
for package in "${wanted[@]}"; do
  installed "$package" || missing+=("$package")
done

install_missing() {
  local sudo=() apt
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
}

if ((${#missing[@]} == 0)); then
  echo "setup: all ${#wanted[@]} packages are here"
else
  install_missing
fi
if [[ -n $peers ]]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  [[ -x build/peers/bin/python ]] || python3 -m venv build/peers
  build/peers/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.15.*' numpy
  echo "setup: PyTorch is in build/peers"
fi
echo "setup: done"
