#!/usr/bin/env bash
# Makes an autograder for one lab, as Gradescope takes it: a zip with setup.sh, run_autograder, the
# tree as it is committed, and all libraries. Neither setting it up nor grading wants a network, but
# for a compiler where the image has none.
#
#   labs/autograder.sh 08 OUT.zip
#
# The image must have g++ 12 or later and Python 3.11 or later, and its C library must not be older
# than this machine's: a Debian 12 or an Ubuntu 24.04. This machine must be a Debian
# (scripts/bundle_deps.sh).
set -euo pipefail

fail() {
  echo "autograder.sh: $*" >&2
  exit 2
}

[[ $# == 2 && $1 =~ ^([0-9][0-9]x?|gemm|cuda_[a-z]+)$ && $2 == *.zip ]] || fail "usage: labs/autograder.sh NN OUT.zip"
out=$(realpath -m -- "$2")
[[ ! -e $out ]] || fail "$2 is there already"
[[ -d $(dirname "$out") ]] || fail "no folder $(dirname "$2")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for folder in labs/"$1"{,_*}; do
  [[ ! -f $folder/lab.toml ]] || name=$(basename "$folder")
done
[[ -n ${name-} ]] || fail "no lab $1"
base=$(sed -n 's/^base = "\([^ ]*\).*/\1/p' "labs/$name/lab.toml")  # the chapter whose model the lab's program reads
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/zip/tree"
git archive HEAD | tar -x -C "$work/zip/tree"
scripts/bundle_deps.sh --with-cmake "$work/zip/deps"

cat >"$work/zip/setup.sh" <<EOF
#!/usr/bin/env bash
# Builds the reference of lab $1, once for all submissions. Only root may read the tree.
set -euo pipefail
cd "\$(dirname "\${BASH_SOURCE[0]}")"
fail() {
  echo "setup.sh: \$*; choose an image of Ubuntu 24.04 or Debian 12" >&2
  exit 2
}
# The image may come without a compiler. All else is in deps/.
command -v g++ >/dev/null || { apt-get -qq update && apt-get -qqy install g++; } || true
command -v g++ >/dev/null || fail "no g++, and none to install"
[[ \$(g++ -dumpversion | cut -d. -f1) -ge 12 ]] || fail "g++ \$(g++ -dumpversion) is too old, 12 is wanted"
python3 -c 'import tomllib' 2>/dev/null || fail "wants Python 3.11 or later"
. deps/env.sh
chmod 700 tree
cd tree
# Where it is built may be another processor than where it grades.
cmake --preset cpu -D BUILD_TESTING=OFF -D LADDER_BENCH=OFF -D LADDER_MARCH=x86-64-v3 \\
  -D LADDER_ONLY_CHAPTERS='^($name${base:+|$base})\$'
cmake --build --preset cpu --target labs${base:+ ch$base}
EOF
cat >"$work/zip/run_autograder" <<EOF
#!/usr/bin/env bash
# Grades /autograder/submission into /autograder/results/results.json. What it prints is for whoever
# grades: lines that a person should look at.
set -euo pipefail
base=\${AUTOGRADER:-/autograder}
. "\$base/source/deps/env.sh"
exec python3 -B "\$base/source/tree/labs/lab.py" grade $1 \\
  --submission "\$base/submission" --results "\$base/results/results.json"
EOF
chmod +x "$work"/zip/{setup.sh,run_autograder}
(cd "$work/zip" && python3 -c 'import shutil, sys; shutil.make_archive(sys.argv[1], "zip", ".")' "${out%.zip}")
echo "autograder: $2, $(du -m "$out" | cut -f1) MB, grades $name"
