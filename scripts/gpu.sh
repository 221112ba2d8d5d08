#!/usr/bin/env bash
# Builds Spool for the GPU of this machine, runs its tests and benchmarks on it, and leaves what came of
# it in $OUT (build/gpu/results by default), in at most eight files:
#   device.json       the GPU, its driver, the compilers
#   log.txt           what every stage said
#   cuda_tests.xml    the tests that need the GPU, as JUnit has it; tests.xml, the others
#   kernels.json      Google Benchmark's; step.json, likewise, and the policies' with it
#   peers.json        PyTorch on the same model
#   summary.txt       the table that is printed last
# Needs g++, nvcc, cmake, ninja and python3, and no network: what else Spool is built with is taken from
# .carry/ where scripts/carry.sh has filled it, beside what the machine has.
#   scripts/gpu.sh                all stages, in ten minutes at most, or in SPOOL_GPU_SECONDS
#   scripts/gpu.sh STAGE...       some of them
#   scripts/gpu.sh --dry-run      says what they are
# Exits with 0 if all passed, 1 if not, 2 for a wrong command line, 3 if there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

usual=570
limit=${SPOOL_GPU_SECONDS:-$usual}  # for everything; stages get more where this is more
build=build/gpu
carried=$PWD/.carry/usr
OUT=${OUT:-$build/results}
cores=$(nproc)

# A stage, the most seconds it may take, and what it is.  The first are what the last need; the last
# are what is missed least if time runs out.
stages=(
  "device 30 what the machine is"
  "build 280 all programs, for this GPU"
  "cuda_tests 150 tests that need the GPU"
  "kernels 100 every kernel against what the device can do"
  "step 90 a training step of GPT-2, and the optimizer"
  "policies 60 what recomputing and offloading cost and save"
  "peers 150 PyTorch on the same model"
  "memcheck 120 the kernels' tests under compute-sanitizer: memory"
  "racecheck 120 the kernels' tests under compute-sanitizer: races"
  "tests 120 all other tests"
)

known=()
for line in "${stages[@]}"; do known+=("${line%% *}"); done

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
[ ${#wanted[@]} -gt 0 ] || wanted=("${known[@]}")

if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || [ -z "$gpu" ]; then
  echo "gpu: there is no CUDA GPU here that nvidia-smi knows of; nothing was built or run" >&2
  exit 3
fi

mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 1
log=$OUT/log.txt
: >"$log"
PATH=$PATH:/usr/local/cuda/bin
if [ -d "$carried" ]; then
  libraries=$carried/lib/$(uname --machine)-linux-gnu
  export CMAKE_PREFIX_PATH=$carried${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  # What they need is found by them alone: nothing is to be set to run a program that is built here.
  export LDFLAGS="-Wl,--disable-new-dtags,-rpath,$libraries ${LDFLAGS:-}"
fi

# Each stage prints; 77 says that it could not be done here, and its last line why.
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
print(rows.splitlines()[0] if rows else "nvidia-smi does not say what the GPU is")
PYTHON
}

# Compute capability as CMake writes it: 90 for 9.0.
architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head --lines=1)
  [[ $found =~ ^[0-9]+\.[0-9]$ ]] && echo "${found/./}" || echo native
}

build_all() {
  # A compiler not seen before may warn of what others do not.  What does not build is missed by the
  # stage that needs it, and the rest is still there.
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPOOL_CUDA=toolkit \
    "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)" -DSPOOL_EXAMPLES=OFF -DSPOOL_STRICT=OFF \
    "-DCMAKE_LIBRARY_ARCHITECTURE=$(uname --machine)-linux-gnu" \
    "-DPython3_EXECUTABLE=$(command -v python3)" &&
    cmake --build "$build" --parallel "$cores" -- -k 0
}

# Runs some of ctest's tests, leaves its report, and says how many did what.  With `none`, one that
# is skipped has failed.
some_tests() {
  local report=$OUT/$1.xml skips=$2 status=0 counts
  shift 2
  rm -f "$report"
  ctest --test-dir "$build" --stop-time "$(date --date="+$((seconds - 10)) seconds" +%T)" --output-on-failure --no-tests=error --output-junit "$report" "$@" || status=1
  counts=$(sed --quiet 's/^.*[[:space:]]\(tests\|failures\|skipped\)="\([0-9]\+\)".*$/\2 \1/p' \
    "$report" | head --lines=3 | paste --serial --delimiters=, | sed 's/,/, /g')
  echo "$counts"
  [ "$skips" != none ] || ! grep --quiet '[1-9][0-9]* skipped' <<<"$counts" || status=1
  return $status
}

cuda_tests() { some_tests cuda_tests none --label-regex '^cuda$' --parallel 4 --timeout 100; }
other_tests() { some_tests tests any --label-exclude '^cuda$' --parallel "$cores" --timeout 100; }

# Under compute-sanitizer, which not every machine lets work.
sanitize() {
  local tool=$1 tests
  command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer" && return $skipped; }
  tests=("$build"/tests/cuda_*_test)
  [ -x "${tests[0]}" ] || { echo "there are no tests of kernels" && return 1; }
  if compute-sanitizer "$build/tests/cuda_elementwise_test" --gtest_filter='*Refuses*' 2>&1 |
    grep 'Device not supported'; then
    echo "compute-sanitizer does not support this device" && return $skipped
  fi
  export verdicts
  verdicts=$(mktemp)
  # shellcheck disable=SC2016
  printf '%s\0' "${tests[@]}" | xargs --null --max-args=1 --max-procs=4 bash -c '
    program=$1
    if said=$(timeout 50 compute-sanitizer --tool "$0" --error-exitcode 9 "$program" --gtest_brief=1 2>&1)
    then verdict=clean
    else
      case $? in 124) verdict="not finished in 50 s" ;; *) verdict="errors" ;; esac
    fi
    printf "%s\n" "$said" | tail --lines=40
    echo "$0 $(basename "$program"): $verdict" | tee --append "$verdicts"' "$tool"
  echo "$(grep --count ': clean' "$verdicts") clean, $(grep --count ': not' "$verdicts") not finished," \
    "$(grep --count ': errors' "$verdicts") with errors $(grep ': errors' "$verdicts" | paste --serial)"
  if grep --quiet ": errors" "$verdicts"; then rm "$verdicts" && return 1; fi
  rm "$verdicts"
}

# A Google Benchmark program on the GPU; an error in one of its benchmarks is an error.
benchmarks() {
  local name=$1 report=$OUT/$1.json
  shift
  rm -f "$report"
  "$build/benchmarks/$name" --device=cuda "--benchmark_out=$report" --benchmark_out_format=json "$@" &&
    ! grep --after-context=1 '"error_occurred": true' "$report" &&
    echo "$(grep --count '"real_time"' "$report") benchmarks"
}

# Beside the steps, as there may be only so many files.
policies() {
  benchmarks policies --dtype=bf16 --batch=32 --benchmark_filter='block|residual' || return 1
  python3 - "$OUT/step.json" "$OUT/policies.json" <<'PYTHON' && rm "$OUT/policies.json"
import json, os, sys

steps, policies = sys.argv[1:]
found = json.load(open(policies))
if os.path.exists(steps):
    before = json.load(open(steps))
    found["benchmarks"] = before["benchmarks"] + found["benchmarks"]
json.dump(found, open(steps, "w"), indent=2)
PYTHON
}

peers() {
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "python3 has no PyTorch that sees the GPU" && return $skipped
  fi
  rm -f "$OUT/peers.json"
  python3 benchmarks/peers/gpt2.py --model gpt2-124m --batch 32 --seq 1024 --out "$OUT/peers.json"
}

stage() {
  case $1 in
    device) device_facts ;;
    build) build_all ;;
    cuda_tests) cuda_tests ;;
    tests) other_tests ;;
    memcheck | racecheck) sanitize "$1" ;;
    kernels) benchmarks kernels --benchmark_filter='/bf16|^launch' ;;
    step) benchmarks step ;;
    policies) policies ;;
    peers) peers ;;
  esac
}

export OUT build cores skipped
mapfile -t functions <<<"$(declare -F | cut --delimiter=' ' --fields=3)"
export -f "${functions[@]}"

results=() passed=true
for line in "${stages[@]}"; do
  read -r name seconds _ <<<"$line"
  seconds=$((seconds * limit / usual))
  printf '%s\n' "${wanted[@]}" | grep --quiet --line-regexp "$name" || continue
  left=$((limit - SECONDS)) started=$SECONDS
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

python3 benchmarks/report.py "$OUT" >>"$OUT/summary.txt" 2>>"$log"
tail --bytes=15M "$log" >"$log.end" && mv "$log.end" "$log"
printf '\n%s\n' "------ all of it is in $OUT" && cat "$OUT/summary.txt"
$passed || exit 1
