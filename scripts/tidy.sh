#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy, on all cores.
#   scripts/tidy.sh             every source but *_test.cpp, most of which is GoogleTest; CUDA sources
#                               and the emulator are checked as C++, as the emulated device has them
#   scripts/tidy.sh --recent    those of them that scripts/changed.py --near lists: sources that differ
#                               from the commit named by SPOOL_BASE, or else from 20 commits back,
#                               and the nearest user of each header that does
#   scripts/tidy.sh FILE...     these sources
set -euo pipefail
cd "$(dirname "$0")/.."

recent=false
case ${1:-} in
  --recent) recent=true && shift ;;
  -*) echo "usage: scripts/tidy.sh [--recent | FILE...]" >&2 && exit 2 ;;
esac

for preset in release asan; do  # configured, never built
  cmake --preset "$preset" -B "build/tidy/$preset" -DCMAKE_UNITY_BUILD=OFF >/dev/null
done
sources() {
  sed --quiet 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "build/tidy/$1/compile_commands.json" | sort --unique
}
if [ $# -eq 0 ]; then
  emulated='\.cu$|/tests/emulator/'
  others="_test\.cpp$|^$PWD/build/"
  mapfile -t files < <(
    sources release | grep --invert-match --extended-regexp "$emulated|$others"
    sources asan | grep --extended-regexp "$emulated" | grep --invert-match --extended-regexp "$others"
  )
  if $recent; then
    changed=$(python3 scripts/changed.py --near | sed "s#^#$PWD/#")
    mapfile -t files < <(printf '%s\n' "${files[@]}" | grep --line-regexp --fixed-strings "$changed")
    [ ${#files[@]} -gt 0 ] || { echo "tidy: no source differs" && exit 0; }
  fi
  set -- "${files[@]}"
fi

# Standard error only counts the warnings suppressed in headers of others.
# shellcheck disable=SC2016
if ! printf '%s\0' "$@" |
  xargs --null --max-args=1 --max-procs="$(nproc)" sh -c '
    case $0 in *.cu | *tests/emulator/*) build=build/tidy/asan ;; *) build=build/tidy/release ;; esac
    clang-tidy-14 -p $build --quiet "$0" 2>/dev/null'; then
  echo "tidy: clang-tidy found what is listed above"
  exit 1
fi
echo "tidy: $# sources are clean"
