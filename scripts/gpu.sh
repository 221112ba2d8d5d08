#!/usr/bin/env bash
# Builds Spool for the GPU of this machine, runs its tests and benchmarks on it, and writes the results
# to $OUT (build/gpu/results by default), in at most nine files:
#   device.json       the GPU, its drivers, the libraries and headers found, the compilers; each second's
#                     clocks, power and throttling
#   log.txt           the output of every stage
#   cuda_tests.xml    results of the tests that need the GPU, in JUnit's format; with tests, of the others
#   kernels.json      results of the kernels' benchmarks, in Google Benchmark's format
#   step.json         results of the benchmarks of steps and texts, of chunks, and plans over budgets
#   peers.json        times of PyTorch, and of llm.c, on the same models
#   matmul.json       the fastest algorithms of matrix products
#   ranks.json        with ranks, what ranks with a GPU each do (scripts/gpu/ranks.py)
#   summary.txt       what is printed last: a line for each stage, and tables
# Needs g++, nvcc, cmake, ninja and python3, and no network: libraries that the machine lacks are taken
# from .carry/, which scripts/carry.sh fills.  SPOOL_LLMC may name a train_gpt2cu of llm.c, to be
# timed with the peers.
#   scripts/gpu.sh                runs all stages but those by name, in at most ten minutes, or
#                                 SPOOL_GPU_SECONDS
#   scripts/gpu.sh STAGE...       runs some stages; without `build`, with the existing build
#   scripts/gpu.sh --dry-run [STAGE...]
#                                 lists stages, what they build, their limits and the carried bytes
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

# A stage, its limit in seconds, what it does, and the targets that it needs.  The limits add up to the
# usual time; what a stage leaves of its own is the next one's.  Later stages need the first ones; the
# least important are last, in case time runs out.
tests_on_cuda="autograd_cuda_tests end_to_end_cuda_tests kernels_cuda_tests models_inference_cuda_tests
  models_steps_cuda_host_threads_test models_steps_cuda_tests"
stages=(
  "device 50|facts about the machine, and what no emulator tells|"
  "build 180|what the stages need, for this GPU|"
  "cuda_tests 70|tests that need the GPU, but those of the program|$(xargs <<<"$tests_on_cuda")"
  "step 65|steps of GPT-2 124M and Llama 3.2 1B, and the trainer's own loop|benchmark_step spool"
  "tune 40|algorithms of matrix products, into the user's cache|benchmark_tune"
  "step_again 25|the trainer's loop by those algorithms, and the step once more|benchmark_step spool"
  "kernels 40|every kernel against the limits of the device|benchmark_kernels benchmark_generation"
  "command_test 30|tests of the program on the GPU|spool"
  "peers 50|PyTorch and llm.c on the same models|"
  "memcheck 20|the kernels' tests under compute-sanitizer: memory|kernels_cuda_tests"
)
by_name=(
  "racecheck 120|the kernels' tests under compute-sanitizer: races|kernels_cuda_tests"
  "plans 120|steps under the planner's plans and simple policies, and chunks|benchmark_chunks benchmark_peak_memory"
  "tests 200|all other tests|all"
  "ranks 540|of NCCL what one GPU tells, in a minute; on more, bits, bytes and times of ranks|benchmark_exchange models_steps_nccl_ranks runtime_nccl_one_rank spool"
)

name_of() { echo "${1%% *}"; }
seconds_of() { local limited=${1%%|*} && echo "${limited##* }"; }
purpose_of() { cut --delimiter='|' --fields=2 <<<"$1"; }
targets_of() { cut --delimiter='|' --fields=3 <<<"$1"; }

known=() wanted=() dry=false
for line in "${stages[@]}" "${by_name[@]}"; do known+=("$(name_of "$line")"); done
for argument in "$@"; do
  if [ "$argument" = --dry-run ]; then
    dry=true
  elif printf '%s\n' "${known[@]}" | grep --quiet --line-regexp --fixed-strings -- "$argument"; then
    wanted+=("$argument")
  else
    echo "usage: scripts/gpu.sh [--dry-run] [${known[*]}]" >&2
    exit 2
  fi
done
if [ ${#wanted[@]} -gt 0 ]; then
  chosen=()
  for line in "${stages[@]}" "${by_name[@]}"; do
    [[ " ${wanted[*]} " != *" $(name_of "$line") "* ]] || chosen+=("$line")
  done
  stages=("${chosen[@]}")
fi

# The targets of the chosen stages, each once.
targets=$(for line in "${stages[@]}"; do tr ' ' '\n' <<<"$(targets_of "$line")"; done | sort --unique | xargs)

if $dry; then
  echo "gpu: in $limit seconds at most, into $OUT:"
  for line in "${stages[@]}"; do
    printf '  %-12s %4d s   %s\n' "$(name_of "$line")" "$(seconds_of "$line")" "$(purpose_of "$line")"
  done
  echo "targets: $targets"
  echo "carried: $(du --summarize --bytes .carry 2>/dev/null | cut --fields=1 | grep . || echo 0) bytes in .carry/"
  exit 0
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
export OUT build cores skipped targets

# Prints the clocks in MHz, the power in W, and why the GPU is throttled, if it is, each second.
watch_clocks() {
  exec nvidia-smi --loop=1 --format=csv,noheader,nounits \
    --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active
}
clock_rows=$(mktemp) stage_times=$(mktemp)
watch_clocks >"$clock_rows" 2>/dev/null &
watcher=$!
trap 'kill "$watcher" 2>/dev/null; rm -f "$clock_rows" "$stage_times"' EXIT

results=() passed=true until=0
for line in "${stages[@]}"; do
  name=$(name_of "$line") until=$((until + $(seconds_of "$line") * limit / usual))
  started=$SECONDS seconds=$(((until < limit ? until : limit) - SECONDS))
  export seconds
  echo "$(date +%s.%N) $name" >>"$stage_times"
  printf '\n== %s\n' "$name" >>"$log"
  if [ "$seconds" -lt 15 ]; then
    result="left out" why="no time is left"
  else
    timeout --kill-after=5 "$seconds" bash scripts/gpu/stages.sh "$name" >>"$log" 2>&1
    status=$? why=$(tail --lines=1 "$log" | cut --characters=-90)
    case $status in
      0) result=passed ;;
      "$skipped") result="left out" ;;
      124 | 137) result=stopped why="after $seconds seconds; $why" ;;
      *) result=failed ;;
    esac
  fi
  [[ $result =~ ^(passed|left out)$ ]] || passed=false
  results+=("$(printf '%-12s %-8s %4d s   %s' "$name" "$result" $((SECONDS - started)) "$why")")
  echo "${results[-1]}"
  [ "$result" != failed ] || sed "1,/^== $name\$/d" "$log" | tail --lines=30 | sed 's/^/    /'
  printf '%s\n' "$gpu" "${results[@]}" >"$OUT/summary.txt"
done

kill "$watcher" 2>/dev/null
{
  printf '\nclocks of the multiprocessors, and power:\n'
  python3 scripts/gpu/clocks.py "$OUT/device.json" "$clock_rows" "$stage_times"
  python3 benchmarks/scripts/report.py "$OUT"
} >>"$OUT/summary.txt" 2>>"$log"
tail --bytes=15M "$log" >"$log.end" && mv "$log.end" "$log"
printf '\n%s\n' "results are in $OUT:" && cat "$OUT/summary.txt"
$passed || exit 1
