#!/usr/bin/env bash
# Trains a small GPT-2 for about two minutes on two cores within a budget, then lets it write.
#   scripts/demo.sh           on the text of this repository
#   scripts/demo.sh FILE      on a text file of yours
set -euo pipefail

model=gpt2-tiny
steps=1600
memory=128MiB
prompt="The planner"
tokens=400
out=runs/demo

data=()
if [ $# -gt 0 ]; then
  [ -r "$1" ] || { echo "demo: there is no file $1 to read" >&2 && exit 1; }
  data=(--data "$(realpath "$1")")
fi
cd "$(dirname "$0")/.."

bash scripts/setup.sh build
# Tests are built where somebody has asked for them already; the demo needs none.
[ -f build/release/build.ninja ] ||
  cmake --preset release -DSPOOL_TESTS=OFF -DSPOOL_BENCHMARKS=OFF -DSPOOL_EXAMPLES=OFF >/dev/null
cmake --build --preset release --target spool
spool=build/release/spool

rm -rf "$out"  # of the last demo
show() { printf '\n$ %s\n' "$*" && "$@"; }
show "$spool" train --model "$model" "${data[@]}" --steps "$steps" --memory "$memory" --out "$out"
show "$spool" generate --model "$out" --prompt "$prompt" --tokens "$tokens"
