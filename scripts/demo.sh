#!/usr/bin/env bash
# Trains a small GPT-2 within a memory budget, for about two minutes on two cores, and generates text; then
# teaches it a few answers by an adapter (LoRA), in seconds, and asks for one.
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
adapter=runs/demo-adapter
lines=runs/demo-lines.jsonl
question="What is kept for backward? "

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

rm -rf "$out" "$adapter"
show() { printf '\n$ %s\n' "$*" && "$@"; }
show "$spool" train --model "$model" "${data[@]}" --steps "$steps" --memory "$memory" --out "$out"
# A model of bytes may stop within a character, or write what is none; these bytes are left out.
show "$spool" generate --model "$out" --prompt "$prompt" --tokens "$tokens" |
  { iconv -c -f UTF-8 -t UTF-8 || [ $? = 1 ]; }

cat >"$lines" <<'LINES'
{"prompt": "What is kept for backward? ", "completion": "As much as fits the budget."}
{"prompt": "What is computed again? ", "completion": "Whatever takes the least time for its bytes."}
{"prompt": "What is a rehearsal? ", "completion": "A step on a device without memory."}
{"prompt": "How far is the peak from what was foretold? ", "completion": "Not one byte."}
{"prompt": "What does an adapter cost? ", "completion": "Two small matrices beside each linear."}
{"prompt": "What is a tape? ", "completion": "What forward did, for backward to undo."}
LINES
show "$spool" train --model "$out" --data "$lines" --val-data "$lines" --lora 16 --lr 1e-2 --epochs 80 --memory "$memory" \
  --no-sample --out "$adapter"
show "$spool" generate --model "$adapter" --prompt "$question" --stop . --temperature 0 --tokens 80 |
  { iconv -c -f UTF-8 -t UTF-8 || [ $? = 1 ]; }
