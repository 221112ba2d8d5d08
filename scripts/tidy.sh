#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy, on all cores.
#   scripts/tidy.sh             on every source but *_test.cpp, of which GoogleTest is most; CUDA
#                               sources and the emulator as the emulated device has them, in C++
#   scripts/tidy.sh --recent    on those of them that commits of the last four hours changed
#   scripts/tidy.sh FILE...     on these
set -euo pipefail
cd "$(dirname "$0")/.."

for preset in release asan; do  # configured, never built
  cmake --preset "$preset" -B "build/tidy/$preset" -DCMAKE_UNITY_BUILD=OFF >/dev/null
done
sources() { sed --quiet 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "build/tidy/$1/compile_commands.json" | sort --unique; }
recent=false
if [ "${1:-}" = --recent ]; then
  recent=true
  shift
fi
if [ $# -eq 0 ]; then
  emulated='\.cu$|/tests/emulator/'
  mapfile -t files < <(sources release | grep --invert-match --extended-regexp "$emulated|_test\.cpp$|^$PWD/build/" &&
    sources asan | grep --extended-regexp "$emulated")
  if $recent; then  # where there is a history to tell
    changed=$(git log --since='4 hours ago' --name-only --pretty=format: 2>/dev/null | sed "s#^..*#$PWD/&#")
    mapfile -t files < <(printf '%s\n' "${files[@]}" | grep --line-regexp --fixed-strings "$changed")
    [ ${#files[@]} -gt 0 ] || exit 0
  fi
  set -- "${files[@]}"
fi

# What it says on stderr only counts what it suppressed in other people's headers.
# shellcheck disable=SC2016
if ! printf '%s\0' "$@" |
  xargs --null --max-args=1 --max-procs="$(nproc)" sh -c '
    case $0 in *.cu | *tests/emulator/*) build=build/tidy/asan ;; *) build=build/tidy/release ;; esac
    clang-tidy-14 -p $build --quiet "$0" 2>/dev/null'; then
  echo "tidy: clang-tidy complains of what is listed above"
  exit 1
fi
echo "tidy: $# sources are clean"
