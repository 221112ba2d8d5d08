#!/usr/bin/env bash
# Trains a small GPT-2 within a memory budget, for about two minutes on two cores, then generates text.
# To compile Spool first took ten minutes on two cores that were busy besides, and takes less on others.
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
  [ -r "$1" ] || { echo "demo: cannot read a file $1" >&2 && exit 1; }
  data=(--data "$(realpath "$1")")
fi
cd "$(dirname "$0")/.."

bash scripts/setup.sh build
build=build/release  # used if it exists
if [ ! -f "$build/build.ninja" ]; then
  # A build of its own, as most of the time went into compiling: several sources at a time halve it,
  # -O1 saves a sixth of the rest (the kernels set -O3 themselves), and CUDA waits for a GPU.
  build=build/demo
  options=(-DSPOOL_TESTS=OFF -DSPOOL_BENCHMARKS=OFF -DSPOOL_EXAMPLES=OFF -DSPOOL_STRICT=OFF
    -DCMAKE_UNITY_BUILD=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
  nvidia-smi >/dev/null 2>&1 || options+=(-DSPOOL_CUDA=off)
  cmake --preset release -B "$build" "${options[@]}" >/dev/null
fi
if [ ! -x "$build/spool" ]; then
  echo "demo: compiling Spool, once: it took ten minutes on two busy cores, and here are $(nproc)"
fi
cmake --build "$build" --target spool
spool=$build/spool

rm -rf "$out"
show() { printf '\n$ %s\n' "$*" && "$@"; }
show "$spool" train --model "$model" "${data[@]}" --steps "$steps" --memory "$memory" --out "$out"
# A model of bytes may stop within a character, or write what is none; these bytes are left out.
show "$spool" generate --model "$out" --prompt "$prompt" --tokens "$tokens" |
  { iconv -c -f UTF-8 -t UTF-8 || [ $? = 1 ]; }
