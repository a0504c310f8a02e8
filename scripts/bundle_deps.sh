#!/usr/bin/env bash
# Gathers what the build needs, from Debian's packages, in one folder that can be carried to a
# machine without a network, such as one that grades labs. Installs nothing and needs no root.
#
#   scripts/bundle_deps.sh DIR                20 MB: libraries, pkg-config, the text
#   scripts/bundle_deps.sh --with-cmake DIR   also CMake and Ninja; 100 MB
#
# There, `. DIR/env.sh` makes CMake find it all. That machine needs a C++ compiler, Python 3 and
# this machine's kind of processor; its system may be another, if its C library is not older. Neither
# MPI nor NCCL is in it: Open MPI looks for its parts where it was installed, and NCCL belongs to the
# toolkit. Where that machine has none, ranks are threads.
set -euo pipefail

fail() {
  echo "bundle_deps.sh: $*" >&2
  exit 2
}

with_cmake=false
[[ ${1-} == --with-cmake ]] && with_cmake=true && shift
[[ $# == 1 && -n $1 && $1 != -* ]] || fail "usage: scripts/bundle_deps.sh [--with-cmake] DIR"
for program in apt-get apt-cache dpkg-deb g++; do
  command -v "$program" >/dev/null || fail "no $program here: it takes a Debian with a compiler"
done
command -v bible >/dev/null || fail "no program 'bible'; scripts/setup.sh installs it (bible-kjv)"
wanted=$(realpath -m -- "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -e $wanted ]] && ! [[ -d $wanted && -z $(ls -A "$wanted") ]]; then
  fail "$wanted is there already and is no empty folder"
fi
# Beside DIR, which is all there or not there at all.
{ mkdir -p "$(dirname "$wanted")" && dir=$(mktemp -d "$wanted.part.XXXXXX"); } 2>/dev/null ||
  fail "cannot make the folder $wanted"
work=$(mktemp -d)
trap 'rm -rf "$work" "$dir"' EXIT

# What every machine with a compiler has, and what no build of ours reads: GoogleTest's sources, and
# parts of Boost that other parts of its Boost.Context package are for.
left_out='libc6|libc6-dev|libgcc-s1|libgomp1|libstdc\+\+.*|gcc-.*|perl.*|dpkg|procps|googletest'
left_out+='|libboost-(atomic|chrono|date-time|serialization|system|thread).*'

# closure PACKAGE...: these and all that they depend on, one a line, each round's after the last's.
closure() {
  local round=("$@") all=$'\n'
  while ((${#round[@]})); do
    all+=$(printf '%s\n' "${round[@]}")$'\n'
    # A name in angle brackets is a virtual package; compilers provide those that are met here.
    mapfile -t round < <(apt-cache depends --important "${round[@]}" |
      sed -nE 's/^ *\|?(Pre)?Depends: ([^<].*)/\2/p' | sort -u | grep -vxE "$left_out" |
      grep -vxF "$all")
  done
  printf '%s' "${all#?}"
}

# unpack FOLDER PACKAGE...: the packages with all that they depend on.
unpack() {
  local folder=$1 packages deb
  mapfile -t packages < <(closure "${@:2}")
  mkdir "$work/debs"
  (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}") ||
    fail "cannot download ${packages[*]}; apt-get update may help"
  for deb in "$work"/debs/*.deb; do
    dpkg-deb --extract "$deb" "$folder"
    dpkg-deb --show "$deb" >>"$dir/packages.txt"
  done
  rm -r "$work/debs"
}

# The build's libraries, as setup.sh lists them, and those of the tests.
libraries=()
eval "$(sed -n '/^libraries=(/,/)/p' scripts/setup.sh)"
((${#libraries[@]})) || fail "scripts/setup.sh has no list of libraries"
unpack "$dir" "${libraries[@]}" libgtest-dev libbenchmark-dev pkg-config

# Of Boost's 160 MB, the folders that our sources lead to, and its version.
boost=$dir/usr/include/boost
mv "$boost" "$work/boost"
mkdir "$boost"
{
  echo version.hpp
  grep -rhE '^#include <boost/' kernels common |
    g++ -std=c++20 -M -x c++ -I "$work" - | grep -oE "$work/boost/[^/ ]+" | sed 's,.*/,,' | sort -u
} | while read -r part; do mv "$work/boost/$part" "$boost/"; done
[[ -f $boost/config.hpp ]] || fail "the headers of Boost are not where they were"

# Of the rest, what is read when building or running; and the licenses.
rm -rf "${dir:?}"/etc "$dir"/usr/share/{aclocal,bug,lintian,man}
find "$dir/usr/share/doc" -type f ! -name copyright -delete
find "$dir/usr/share" -xtype l -delete
find "$dir" -type d -empty -delete

# Paths that would lead out of the folder.
find "$dir/usr" -name '*.pc' -print0 | while IFS= read -r -d '' pc; do
  up=$(realpath --relative-to="$(dirname "$pc")" "$dir/usr")
  sed -i "s,/usr\>,\${pcfiledir}/$up,g" "$pc"
done
[[ -z $(find "$dir" -type l -lname '/*') ]] || fail "a link in $dir leads out of it"

if $with_cmake; then
  # In a folder of their own with their libraries, which no other program should load.
  unpack "$dir/cmake" cmake ninja-build
  rm -rf "$dir"/cmake/{etc,var} "$dir"/cmake/usr/bin/cpack "$dir"/cmake/usr/share/cmake-*/Help
  rm -rf "$dir"/cmake/usr/share/{bash-completion,bug,emacs,lintian,man,vim}
  mkdir "$dir/cmake/bin"
  for program in cmake ctest ninja; do
    cat >"$dir/cmake/bin/$program" <<'EOF'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
libs=$(echo "$root"/usr/lib/*-linux-gnu "$root"/lib/*-linux-gnu | tr ' ' ':')
LD_LIBRARY_PATH=$libs:$LD_LIBRARY_PATH exec "$root/usr/bin/$(basename "$0")" "$@"
EOF
    chmod +x "$dir/cmake/bin/$program"
  done
fi

bash scripts/text.sh "$dir/bible.txt" >/dev/null

cat >"$dir/env.sh" <<'EOF'
# . env.sh: CMake, pkg-config and programs find the libraries of this folder. For bash.
ladder_deps=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ladder_libs=$(echo "$ladder_deps"/usr/lib/*-linux-gnu)
export CMAKE_PREFIX_PATH=$ladder_deps/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
export PKG_CONFIG=$ladder_deps/usr/bin/pkg-config
export PKG_CONFIG_PATH=$ladder_libs/pkgconfig:$ladder_deps/usr/share/pkgconfig
export LD_LIBRARY_PATH=$ladder_libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [[ -d $ladder_deps/cmake ]]; then export PATH=$ladder_deps/cmake/bin:$PATH; fi
unset ladder_deps ladder_libs
EOF

chmod 755 "$dir"
mv -T "$dir" "$wanted" || fail "cannot make the folder $wanted"
echo "bundle: $wanted, $(wc -l <"$wanted/packages.txt") packages, $(du -sm "$wanted" | cut -f1) MB"
