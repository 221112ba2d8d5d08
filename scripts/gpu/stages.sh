#!/usr/bin/env bash
# Runs one stage of scripts/gpu.sh, which sets $OUT, $build, $cores, $seconds, $skipped and $targets and
# keeps the output: stages.sh STAGE.  The last line of output says what came out.
# shellcheck disable=SC2154
set -uo pipefail
merge=scripts/gpu/merge.py

# Compute capability as CMake writes it: 90 for 9.0.
architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head --lines=1)
  [[ $found =~ ^[0-9]+\.[0-9]$ ]] && echo "${found/./}" || echo native
}

# The name of this GPU's data sheet for `spool plan --machine`.
data_sheet() {
  case $(nvidia-smi --query-gpu=name --format=csv,noheader | head --lines=1) in
    *H100*) echo h100 ;;
    *H200*) echo h200 ;;
    *A100*40*) echo a100-40g ;;
    *A100*) echo a100-80g ;;
    *4090*) echo rtx4090 ;;
    *) return 1 ;;
  esac
}

# What no emulator tells, by programs that need nothing of Spool.
device() {
  local name status=0 to arch
  to=$(mktemp --directory) arch=$(architecture)
  [ "$arch" = native ] || arch=sm_$arch
  for name in device_limits product_limits; do
    nvcc -O2 -std=c++17 "-arch=$arch" "benchmarks/cuda/$name.cu" -lcublasLt -o "$to/$name" &
  done
  wait
  for name in device_limits product_limits; do (cd "$to" && "./$name") || status=1; done
  rm -rf "$to"
  python3 scripts/gpu/facts.py "$OUT/device.json" || status=1
  return $status
}

build() {
  # New compilers have new warnings, so warnings are not errors.  -k 0: if one program does not build,
  # the stages that do not need it still run.
  # shellcheck disable=SC2086
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPOOL_CUDA=toolkit \
    "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)" -DSPOOL_BENCHMARKS=ON -DSPOOL_TESTS=ON \
    -DSPOOL_EXAMPLES=OFF -DSPOOL_STRICT=OFF \
    "-DCMAKE_LIBRARY_ARCHITECTURE=$(uname --machine)-linux-gnu" \
    "-DPython3_EXECUTABLE=$(command -v python3)" &&
    cmake --build "$build" --parallel "$cores" --target $targets -- -k 0
}

# Runs some of ctest's tests, writes its report, and prints how many passed and failed.  The second
# argument is how many may be skipped, any or none.
some_tests() {
  local report=$OUT/$1.xml skips=$2 status=0 counts
  shift 2
  rm -f "$report"
  ctest --test-dir "$build" --stop-time "$(date --date="+$((seconds - 10)) seconds" +%T)" \
    --output-on-failure --no-tests=error --output-junit "$report" "$@" || status=1
  counts=$(sed --quiet 's/^.*[[:space:]]\(tests\|failures\|skipped\)="\([0-9]\+\)".*$/\2 \1/p' \
    "$report" | head --lines=3 | paste --serial --delimiters=, | sed 's/,/, /g')
  echo "$counts"
  [ "$skips" != none ] || ! grep --quiet '[1-9][0-9]* skipped' <<<"$counts" || status=1
  return $status
}

cuda_tests() {
  some_tests cuda_tests none --label-regex '^cuda$' --exclude-regex ^end_to_end/cuda_ --parallel 4 --timeout 60
}
command_test() {
  some_tests command_tests any --tests-regex ^end_to_end/cuda_ --parallel 3 --timeout 60
}
tests() { some_tests tests any --label-exclude '^cuda$' --parallel "$cores" --timeout 100; }

# The tests of the kernels on the GPU, as ctest has them: name, program and arguments, with tabs between.
kernels_tests() {
  ctest --test-dir "$build" --label-regex '^cuda$' --show-only=json-v1 | python3 -c '
import json, os, sys
for test in json.load(sys.stdin)["tests"]:
    command = test.get("command", [""])
    if os.path.basename(command[0]).startswith("kernels_"):
        print(test["name"], *command, sep="\t")'
}

# Runs the tests of the kernels under compute-sanitizer, which some machines do not allow.
sanitize() {
  local tool=$1 tests
  command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer" && return "$skipped"; }
  mapfile -t tests < <(kernels_tests)
  [ ${#tests[@]} -gt 0 ] || { echo "there are no tests of kernels" && return 1; }
  export verdicts limit=$((seconds > 60 ? 50 : seconds - 8))
  verdicts=$(mktemp)
  # shellcheck disable=SC2016
  printf '%s\n' "${tests[@]}" | timeout $((seconds - 4)) xargs --delimiter='\n' --max-args=1 --max-procs=4 bash -c '
    IFS=$'"'\t'"' read -r -a test <<<"$1"
    if said=$(timeout $limit compute-sanitizer --tool "$0" --error-exitcode 9 "${test[@]:1}" --gtest_brief=1 2>&1)
    then verdict=clean
    else
      case $? in 124) verdict="not finished in $limit s" ;; *) verdict="errors" ;; esac
    fi
    ! grep --quiet "Device not supported" <<<"$said" || verdict="unsupported"
    printf "%s\n" "$said" | tail --lines=40
    echo "$0 ${test[0]}: $verdict" | tee --append "$verdicts"' "$tool"
  if grep --quiet ': unsupported' "$verdicts"; then
    rm "$verdicts"
    echo "compute-sanitizer does not support this device" && return "$skipped"
  fi
  echo "$(grep --count ': clean' "$verdicts") of ${#tests[@]} clean," \
    "$(grep --count ': errors' "$verdicts") with errors $(grep ': errors' "$verdicts" | paste --serial)"
  if grep --quiet ": errors" "$verdicts"; then rm "$verdicts" && return 1; fi
  rm "$verdicts"
}

# Runs a Google Benchmark program on the GPU, and adds its results to a file of $OUT, with words before
# their names, those that failed, too; fails then:  benchmarks PROGRAM FILE WORDS [ARGUMENT...]
benchmarks() {
  local name=$1 file=$OUT/$2 words=$3 report=$build/report.json status=0
  shift 3
  rm -f "$report"
  "$build/benchmarks/$name" --device=cuda "--benchmark_out=$report" --benchmark_out_format=json "$@" || status=1
  ! grep --after-context=1 '"error_occurred": true' "$report" || status=1
  echo "$(grep --count '"real_time"' "$report") benchmarks"
  python3 $merge "$file" "$report" "$words" || status=1
  return $status
}

# The step that the peers are compared with: GPT-2's by a graph, or all cases of the compared models.
steps() { benchmarks step step.json "$1" "--benchmark_filter=$2"; }
one_step='^(step/(gpt2-124m/bf16/B:32/T:1024/chunk:0|llama-3.2-1b/).*/graph)'

# The trainer's own loop on random tokens, for the words of its result: what a user sees, beside the
# benchmark's.
trainer() {
  local data=$build/random.txt run=$build/run
  python3 -c 'import random
random.seed(1)
print(end="".join(random.choice("abcdefghij klmnop\n") for _ in range(4_000_000)))' >"$data"
  rm -rf "$run" "$run.log"
  "$build/spool" train --device cuda --model gpt2-124m --dtype bf16 --batch 32 --seq 1024 --steps 24 \
    --data "$data" --out "$run" --log "$run.log" --final-eval none --eval-every 0 || return 1
  python3 - "$run.log" "$build/trainer.json" <<'PYTHON'
import json, statistics, sys

steps = [json.loads(line) for line in open(sys.argv[1])]
milliseconds = statistics.median([step["step_ms"] for step in steps if "loss" in step][8:])
json.dump({"benchmarks": [{"name": "spool train/gpt2-124m/B:32/T:1024", "real_time": milliseconds,
                           "step_ms": milliseconds, "tokens_per_s": 32e3 * 1024 / milliseconds}]},
          open(sys.argv[2], "w"))
PYTHON
  python3 $merge "$OUT/step.json" "$build/trainer.json" "$1"
}

# The times of a step's kernels, foretold by the data sheet and with what was measured, into step.json.
kernel_times() {
  local sheet model options
  sheet=$(data_sheet) || { echo "no data sheet is known for this GPU" && return 0; }
  for model in gpt2-124m llama-3.2-1b; do
    options=(--model "$model" --dtype bf16 --batch 32 --seq 1024 --no-sample --kernels)
    [ "$model" = gpt2-124m ] || options=(--model "$model" --dtype bf16 --batch 1 --seq 2048 --no-sample --kernels)
    "$build/spool" plan "${options[@]}" --machine "$sheet" >"$build/foretold.txt" &&
      "$build/spool" plan "${options[@]}" --device cuda >"$build/measured.txt" || return 1
    python3 scripts/gpu/kernel_times.py "$OUT/step.json" "$model" "$build/foretold.txt" "$build/measured.txt" ||
      return 1
  done
}

step() {
  local status=0
  rm -f "$OUT/step.json"
  trainer "" || status=1
  steps "" '^(step|optimizer)/(gpt2-124m|llama-3.2-1b)/' || status=1
  SPOOL_CUDNN=0 steps "own attention: " "$one_step" || status=1
  kernel_times || status=1
  return $status
}

step_again() { trainer "tuned: " && steps "again: " "$one_step" && kernel_times; }

kernels() {
  rm -f "$OUT/kernels.json"
  local status=0
  benchmarks kernels kernels.json "" --benchmark_filter='/bf16|^(launch|sum_granules|clip_factor)' || status=1
  benchmarks generation step.json "" || status=1
  return $status
}

# Adds its results to step.json.
plans() {
  local status=0
  benchmarks chunks step.json "" || status=1
  "$build/benchmarks/peak_memory" --device=cuda --batch=32 --link=yes --points=4 --policies=4 \
    "--json=$build/peak_memory.json" || status=1
  python3 $merge "$OUT/step.json" "$build/peak_memory.json" plans && return $status
}

# Writes the table to the user's cache, which `spool train` reads, and to $OUT.
tune() {
  local model status=1
  for model in gpt2-124m "llama-3.2-1b --batch=1 --seq=2048"; do
    # A model that is too large for this GPU leaves the others.
    # shellcheck disable=SC2086
    "$build/benchmarks/tune" --model=$model "--copy=$OUT/matmul.json" && status=0
  done
  return $status
}

# The nearest to Spool's step first, next to its own.
peers() {
  local status=0 torch=(python3 benchmarks/peers/torch_step.py --out "$OUT/peers.json")
  rm -f "$OUT/peers.json"
  if [ -n "${SPOOL_LLMC:-}" ]; then
    python3 benchmarks/peers/llmc.py "$SPOOL_LLMC" --out "$OUT/peers.json" || status=1
  fi
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "python3 has no PyTorch that sees the GPU"
    [ -n "${SPOOL_LLMC:-}" ] && return $status
    return "$skipped"
  fi
  local of_gpt2=(--model gpt2-124m --batch 32 --seq 1024) of_llama=(--model llama-3.2-1b --batch 1 --seq 2048)
  "${torch[@]}" "${of_gpt2[@]}" --ways eager-bf16,compiled-bf16 || status=1
  "${torch[@]}" "${of_llama[@]}" --ways eager-bf16,compiled-bf16 || status=1
  "${torch[@]}" "${of_gpt2[@]}" --ways eager,compiled || status=1
  return $status
}

# With one GPU a minute; with more, each part that still has time.
ranks() {
  [ -x "$build/tests/runtime_nccl_one_rank" ] || { echo "this build has no NCCL" && return "$skipped"; }
  python3 scripts/gpu/ranks.py "$build" "$OUT/ranks.json" --seconds $((seconds / 2)) \
    --gpus "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc --lines)"
}

case $1 in
  device | build | cuda_tests | step | tune | step_again | kernels | command_test | peers | plans | tests | ranks) "$1" ;;
  memcheck | racecheck) sanitize "$1" ;;
  *) echo "stages.sh: there is no stage $1" >&2 && exit 2 ;;
esac
