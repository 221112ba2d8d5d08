#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy, on all cores.
#   scripts/tidy.sh             on every source that build/release compiles
#   scripts/tidy.sh FILE...     on these
set -euo pipefail
cd "$(dirname "$0")/.."

database=build/release/compile_commands.json
[ -f "$database" ] || cmake --preset release
if [ $# -eq 0 ]; then
  mapfile -t files < <(sed --quiet 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$database" | sort --unique)
  set -- "${files[@]}"
fi

# What it says on stderr only counts what it suppressed in other people's headers.
# shellcheck disable=SC2016
if ! printf '%s\0' "$@" |
  xargs --null --max-args=1 --max-procs="$(nproc)" \
    sh -c 'clang-tidy-14 -p build/release --quiet "$0" 2>/dev/null'; then
  echo "tidy: clang-tidy complains of what is listed above"
  exit 1
fi
echo "tidy: $# sources are clean"
