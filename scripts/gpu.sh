#!/usr/bin/env bash
# Builds Spool for the GPU of this machine, runs its tests and benchmarks on it, and writes the results
# to $OUT (build/gpu/results by default), in at most eight files:
#   device.json       the GPU, its driver, the compilers; each second's clocks, power and throttling
#   log.txt           the output of every stage
#   cuda_tests.xml    results of the tests that need the GPU, in JUnit's format
#   tests.xml         results of the others
#   kernels.json      results of the kernels' benchmarks, in Google Benchmark's format
#   step.json         results of the benchmarks of steps, chunks, and plans over budgets
#   peers.json        times of PyTorch, and of llm.c, on the same model
#   summary.txt       the table that is printed last
# Needs g++, nvcc, cmake, ninja and python3, and no network: libraries that the machine lacks are taken
# from .carry/, which scripts/carry.sh fills.  SPOOL_LLMC may name a train_gpt2cu of llm.c, to be
# timed with the peers.
#   scripts/gpu.sh                runs all stages, in at most ten minutes, or SPOOL_GPU_SECONDS
#   scripts/gpu.sh STAGE...       runs some stages
#   scripts/gpu.sh tune           times the algorithms of matrix products, for `spool train`'s table, with
#                                 the existing build; not part of a run of all stages
#   scripts/gpu.sh --dry-run      lists the stages
# Exits with 0 if all passed, 1 if not, 2 for a wrong command line, 3 if there is no GPU.
set -uo pipefail
[ -z "${SPOOL_LLMC:-}" ] || SPOOL_LLMC=$(realpath "$SPOOL_LLMC") && export SPOOL_LLMC
cd "$(dirname "$0")/.." || exit 1

usual=570
limit=${SPOOL_GPU_SECONDS:-$usual}  # for all stages; each one's own limit scales with it
build=build/gpu
carried=$PWD/.carry/usr
OUT=${OUT:-$build/results}
cores=$(nproc)

# A stage, its limit in seconds, and what it does.  Later stages need the first ones; the least
# important are last, in case time runs out.
stages=(
  "device 30 facts about the machine"
  "build 280 all programs, for this GPU"
  "cuda_tests 150 tests that need the GPU"
  "kernels 100 every kernel against the limits of the device"
  "step 80 a training step of GPT-2, the optimizer, and the trainer's own loop"
  "peers 140 PyTorch and llm.c on the same model"
  "step_again 40 the step once more, as clocks may have changed"
  "plans 80 steps under the planner's plans and simple policies, and chunks"
  "memcheck 120 the kernels' tests under compute-sanitizer: memory"
  "racecheck 120 the kernels' tests under compute-sanitizer: races"
  "tests 120 all other tests"
)
by_name="tune 200 algorithms of matrix products, into the user's cache"

known=()
for line in "${stages[@]}" "$by_name"; do known+=("${line%% *}"); done

wanted=()
for argument in "$@"; do
  if [ "$argument" = --dry-run ]; then
    echo "gpu: in $limit seconds at most, into $OUT:"
    for line in "${stages[@]}"; do
      read -r name seconds what <<<"$line"
      printf '  %-11s %4d s at most   %s\n' "$name" "$seconds" "$what"
    done
    exit 0
  fi
  if ! printf '%s\n' "${known[@]}" | grep --quiet --line-regexp --fixed-strings -- "$argument"; then
    echo "usage: scripts/gpu.sh [--dry-run] [${known[*]}]" >&2
    exit 2
  fi
  wanted+=("$argument")
done
if [ ${#wanted[@]} -gt 0 ]; then
  stages+=("$by_name")
else
  wanted=("${known[@]}")
fi

if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || [ -z "$gpu" ]; then
  echo "gpu: nvidia-smi finds no CUDA GPU here; nothing was built or run" >&2
  exit 3
fi

mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 1
log=$OUT/log.txt
: >"$log"
PATH=$PATH:/usr/local/cuda/bin
if [ -d "$carried" ]; then
  libraries=$carried/lib/$(uname --machine)-linux-gnu
  export CMAKE_PREFIX_PATH=$carried${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  # Programs that are built here find these libraries by themselves, and those find each other.
  export LDFLAGS="-Wl,--disable-new-dtags,-rpath,$libraries ${LDFLAGS:-}"
fi

# The exit status of a stage that cannot run on this machine; its last line of output says why.
skipped=77

device_facts() {
  python3 - "$OUT/device.json" <<'PYTHON'
import json, platform, subprocess, sys

def said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

fields = ["name", "compute_cap", "driver_version", "memory.total", "memory.used", "clocks.max.sm",
          "clocks.max.mem", "power.limit", "ecc.mode.current", "mig.mode.current"]
rows = said("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader") or ""
facts = {
    "gpus": [dict(zip(fields, map(str.strip, row.split(",")))) for row in rows.splitlines()],
    "nvcc": (said("nvcc", "--version") or "none").splitlines()[-1],
    "compiler": (said("g++", "--version") or "none").splitlines()[0],
    "cmake": (said("cmake", "--version") or "none").splitlines()[0],
    "commit": said("git", "rev-parse", "HEAD"),
    "processor": platform.processor() or platform.machine(),
    "system": platform.platform(),
}
json.dump(facts, open(sys.argv[1], "w"), indent=2)
print(json.dumps(facts, indent=2))
print(rows.splitlines()[0] if rows else "nvidia-smi does not describe the GPU")
PYTHON
}

# Prints the clocks in MHz, the power in W, and why the GPU is throttled, if it is, each second.
watch_clocks() {
  exec nvidia-smi --loop=1 --format=csv,noheader,nounits \
    --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active
}

# Compute capability as CMake writes it: 90 for 9.0.
architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head --lines=1)
  [[ $found =~ ^[0-9]+\.[0-9]$ ]] && echo "${found/./}" || echo native
}

build_all() {
  # New compilers have new warnings, so warnings are not errors.  -k 0: if one program does not build,
  # the stages that do not need it still run.
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPOOL_CUDA=toolkit \
    "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)" -DSPOOL_EXAMPLES=OFF -DSPOOL_STRICT=OFF \
    "-DCMAKE_LIBRARY_ARCHITECTURE=$(uname --machine)-linux-gnu" \
    "-DPython3_EXECUTABLE=$(command -v python3)" &&
    cmake --build "$build" --parallel "$cores" -- -k 0
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

cuda_tests() { some_tests cuda_tests none --label-regex '^cuda$' --parallel 4 --timeout 100; }
other_tests() { some_tests tests any --label-exclude '^cuda$' --parallel "$cores" --timeout 100; }

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
  command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer" && return $skipped; }
  mapfile -t tests < <(kernels_tests)
  [ ${#tests[@]} -gt 0 ] || { echo "there are no tests of kernels" && return 1; }
  export verdicts
  verdicts=$(mktemp)
  # shellcheck disable=SC2016
  printf '%s\n' "${tests[@]}" | xargs --delimiter='\n' --max-args=1 --max-procs=4 bash -c '
    IFS=$'"'\t'"' read -r -a test <<<"$1"
    if said=$(timeout 50 compute-sanitizer --tool "$0" --error-exitcode 9 "${test[@]:1}" --gtest_brief=1 2>&1)
    then verdict=clean
    else
      case $? in 124) verdict="not finished in 50 s" ;; *) verdict="errors" ;; esac
    fi
    ! grep --quiet "Device not supported" <<<"$said" || verdict="unsupported"
    printf "%s\n" "$said" | tail --lines=40
    echo "$0 ${test[0]}: $verdict" | tee --append "$verdicts"' "$tool"
  if grep --quiet ': unsupported' "$verdicts"; then
    rm "$verdicts"
    echo "compute-sanitizer does not support this device" && return $skipped
  fi
  echo "$(grep --count ': clean' "$verdicts") clean, $(grep --count ': not' "$verdicts") not finished," \
    "$(grep --count ': errors' "$verdicts") with errors $(grep ': errors' "$verdicts" | paste --serial)"
  if grep --quiet ": errors" "$verdicts"; then rm "$verdicts" && return 1; fi
  rm "$verdicts"
}

# Runs a Google Benchmark program on the GPU; fails if one of its benchmarks does.
benchmarks() {
  local name=$1 report=$OUT/$1.json
  shift
  rm -f "$report"
  "$build/benchmarks/$name" --device=cuda "--benchmark_out=$report" --benchmark_out_format=json "$@" &&
    ! grep --after-context=1 '"error_occurred": true' "$report" &&
    echo "$(grep --count '"real_time"' "$report") benchmarks"
}

# Writes the table to the user's cache, which `spool train` reads, and to $OUT.
tune() {
  local model status=1
  for model in gpt2-124m "gpt2-355m --chunk-loss=4096" "gpt2-1558m --batch=8 --chunk-loss=4096"; do
    # A model that is too large for this GPU leaves the others.
    # shellcheck disable=SC2086
    "$build/benchmarks/tune" --model=$model "--copy=$OUT/matmul.json" && status=0
  done
  return $status
}

# Adds the benchmarks of a file to step.json, with a word before their names, to keep the number of
# files small.
add_to_steps() {
  python3 - "$OUT/step.json" "$1" "$2" <<'PYTHON' && rm -f "$1"
import json, os, sys

target, file, word = sys.argv[1:]
steps, more = (json.load(open(path)) if os.path.exists(path) else {} for path in (target, file))
for benchmark in more.get("benchmarks", []):
    steps.setdefault("benchmarks", []).append({**benchmark, "name": word + benchmark["name"]})
json.dump(steps, open(target, "w"), indent=2)
PYTHON
}

# The step that the peers are compared with.
step_again() {
  "$build/benchmarks/step" --device=cuda --benchmark_filter='^step/gpt2-124m/' \
    "--benchmark_out=$build/again.json" --benchmark_out_format=json &&
    add_to_steps "$build/again.json" "again: "
}

# The trainer's own loop on random tokens: what a user sees, beside the benchmark's.
trainer() {
  local data=$build/random.txt
  python3 -c 'import random, sys
random.seed(1)
sys.stdout.write("".join(random.choice("abcdefghij klmnop\n") for _ in range(4_000_000)))' >"$data"
  rm -rf "$build/run" "$build/run.log"
  "$build/spool" train --device cuda --model gpt2-124m --dtype bf16 --batch 32 --seq 1024 --steps 24 \
    --data "$data" --out "$build/run" --log "$build/run.log" --final-eval none \
    --eval-every 0 >/dev/null || return 1
  python3 - "$build/run.log" "$build/trainer.json" <<'PYTHON'
import json, statistics, sys

steps = [json.loads(line) for line in open(sys.argv[1])]
milliseconds = statistics.median([step["step_ms"] for step in steps if "loss" in step][8:])
json.dump({"benchmarks": [{"name": "spool train/gpt2-124m/B:32/T:1024", "real_time": milliseconds,
                           "step_ms": milliseconds, "tokens_per_s": 32e3 * 1024 / milliseconds}]},
          open(sys.argv[2], "w"))
PYTHON
}

# Adds its results to step.json.
plans() {
  local status=0
  benchmarks chunks || return 1
  rm -f "$OUT/peak_memory.json"
  "$build/benchmarks/peak_memory" --device=cuda --batch=32 --link=yes --points=4 --policies=4 \
    "--json=$OUT/peak_memory.json" || status=1
  python3 - "$OUT/step.json" "$OUT/chunks.json" "$OUT/peak_memory.json" <<'PYTHON' && rm -f "$OUT/chunks.json" "$OUT/peak_memory.json"
import json, os, sys

steps, chunks, plans = (json.load(open(path)) if os.path.exists(path) else {} for path in sys.argv[1:])
steps["benchmarks"] = steps.get("benchmarks", []) + chunks.get("benchmarks", [])
steps["plans"] = plans
json.dump(steps, open(sys.argv[1], "w"), indent=2)
PYTHON
  return $status
}

peers() {
  local status=0
  rm -f "$OUT/peers.json"
  if [ -n "${SPOOL_LLMC:-}" ]; then
    python3 benchmarks/peers/llmc.py "$SPOOL_LLMC" --out "$build/llmc.json" || status=1
  fi
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    [ ! -f "$build/llmc.json" ] || mv "$build/llmc.json" "$OUT/peers.json"
    echo "python3 has no PyTorch that sees the GPU"
    [ -n "${SPOOL_LLMC:-}" ] && return $status
    return $skipped
  fi
  # The nearest to Spool's step first, next to its own.
  python3 benchmarks/peers/gpt2.py --model gpt2-124m --batch 32 --seq 1024 --out "$OUT/peers.json" \
    --ways compiled-bf16,eager-bf16,compiled,eager || status=1
  if [ -f "$build/llmc.json" ]; then
    python3 - "$OUT/peers.json" "$build/llmc.json" <<'PYTHON' && rm -f "$build/llmc.json"
import json, sys

peers, llmc = (json.load(open(path)) for path in sys.argv[1:])
peers["runs"] += llmc["runs"]
json.dump(peers, open(sys.argv[1], "w"), indent=2)
PYTHON
  fi
  return $status
}

step() {
  benchmarks step || return 1
  trainer && add_to_steps "$build/trainer.json" ""
}

stage() {
  case $1 in
    device) device_facts ;;
    build) build_all ;;
    cuda_tests) cuda_tests ;;
    tests) other_tests ;;
    memcheck | racecheck) sanitize "$1" ;;
    kernels) benchmarks kernels --benchmark_filter='/bf16|^launch' ;;
    step) step ;;
    step_again) step_again ;;
    plans) plans ;;
    tune) tune ;;
    peers) peers ;;
  esac
}

export OUT build cores skipped
mapfile -t functions <<<"$(declare -F | cut --delimiter=' ' --fields=3)"
export -f "${functions[@]}"

clock_rows=$(mktemp) stage_times=$(mktemp)
watch_clocks >"$clock_rows" 2>/dev/null &
watcher=$!
trap 'kill "$watcher" 2>/dev/null; rm -f "$clock_rows" "$stage_times"' EXIT

results=() passed=true
for line in "${stages[@]}"; do
  read -r name seconds _ <<<"$line"
  seconds=$((seconds * limit / usual))
  printf '%s\n' "${wanted[@]}" | grep --quiet --line-regexp "$name" || continue
  left=$((limit - SECONDS)) started=$SECONDS
  echo "$(date +%s.%N) $name" >>"$stage_times"
  export seconds=$((left < seconds ? left : seconds))
  printf '\n== %s\n' "$name" >>"$log"
  if [ "$left" -lt 20 ]; then
    result="left out" why="no time is left"
  else
    # shellcheck disable=SC2016
    timeout --kill-after=5 "$seconds" bash -c 'stage "$1"' stage "$name" >>"$log" 2>&1
    status=$? why=$(tail --lines=1 "$log" | cut --characters=-90)
    case $status in
      0) result=passed ;;
      "$skipped") result="left out" ;;
      124 | 137) result=stopped why="after $seconds seconds; $why" ;;
      *) result=failed ;;
    esac
  fi
  [[ $result =~ ^(passed|left out)$ ]] || passed=false
  results+=("$(printf '%-11s %-8s %4d s   %s' "$name" "$result" $((SECONDS - started)) "$why")")
  echo "${results[-1]}"
  [ "$result" != failed ] || sed "1,/^== $name\$/d" "$log" | tail --lines=30 | sed 's/^/    /'
  printf '%s\n' "$gpu" "${results[@]}" >"$OUT/summary.txt"
done

kill "$watcher" 2>/dev/null
{
  printf '\nclocks of the multiprocessors, and power:\n'
  python3 scripts/gpu-clocks.py "$OUT/device.json" "$clock_rows" "$stage_times"
  python3 benchmarks/scripts/report.py "$OUT"
} >>"$OUT/summary.txt" 2>>"$log"
tail --bytes=15M "$log" >"$log.end" && mv "$log.end" "$log"
printf '\n%s\n' "results are in $OUT:" && cat "$OUT/summary.txt"
$passed || exit 1
