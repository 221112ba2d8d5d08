#!/usr/bin/env bash
# Builds Spool and runs every test; the last line says how many passed and how many failed.
#   scripts/test.sh            four stages: `release`, the tests and checks; `asan` and `tsan`, the tests
#                              under sanitizers, on an emulated GPU, `asan` with the program on it and with
#                              the fuzz targets for some seconds each; `tidy`, clang-tidy, in CI on what
#                              differs (scripts/tidy.sh --recent).  tests/checks/stages.py --list prints
#                              the stages of each test
#   scripts/test.sh STAGE...   these stages alone; also `portable`, the tests of a build for x86-64-v3, and
#                              `tiles`, those of the release build on an emulated tile unit
#   scripts/test.sh --quick    the stage `release`
#   scripts/test.sh --nightly [STAGE...]
#                              all six, with tests at their full size, a minute a fuzz target, and
#                              clang-tidy on all sources, whatever it found before
set -euo pipefail
cd "$(dirname "$0")/.."

usual=(release asan tsan tidy)
nightly_too=(portable tiles)
stages=() nightly=false fuzz_seconds=${SPOOL_FUZZ_SECONDS:-2}
for argument in "$@"; do
  case $argument in
    release | asan | tsan | tidy | portable | tiles) stages+=("$argument") ;;
    --quick) stages+=(release) ;;
    --nightly)
      nightly=true fuzz_seconds=${SPOOL_FUZZ_SECONDS:-60}
      export SPOOL_NIGHTLY=1
      ;;
    *) echo "usage: scripts/test.sh [--quick | --nightly] [${usual[*]} ${nightly_too[*]}]" >&2 && exit 2 ;;
  esac
done
if [ ${#stages[@]} -eq 0 ]; then
  stages=("${usual[@]}")
  if $nightly; then stages+=("${nightly_too[@]}"); fi
fi

passed=0 failed=0 finished=false
summary() {
  if ! $finished; then
    echo "test: stopped before the end"
    failed=$((failed + 1))
  fi
  echo
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] || exit 1
}
trap summary EXIT

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

# A number that ctest's report, a JUnit file, gives for the whole run.
reported() { sed --quiet "s/^.*[[:space:]]$2=\"\([0-9]\+\)\".*$/\1/p" "$1" | head --lines=1; }

# Builds a preset, runs its tests, through a command if one is given, and counts them.
test_preset() {
  local preset=$1 built=${1/#tiles/release} total bad settings=("${faster[@]}")
  local report=$PWD/build/$built/tests-$preset.xml
  shift
  [ "$preset" != asan ] || settings+=("-DSPOOL_FUZZ_SECONDS=$fuzz_seconds")
  say "$preset: build"
  if ! { cmake --preset "$built" "${settings[@]}" && cmake --build --preset "$built"; }; then
    echo "test: $preset does not build"
    failed=$((failed + 1))
    return
  fi
  say "$preset: test"
  rm -f "$report"
  "$@" ctest --preset "$preset" --parallel "$(nproc)" "${patience[@]}" --output-junit "$report" || true
  if [ ! -f "$report" ]; then
    echo "test: ctest did not finish"
    failed=$((failed + 1))
    return
  fi
  total=$(reported "$report" tests) bad=$(reported "$report" failures)
  passed=$((passed + total - bad - $(reported "$report" skipped)))
  failed=$((failed + bad))
}

tidy() {
  local which=()
  if $nightly; then
    which=(--all)
  elif [ -n "${CI:-}" ]; then
    which=(--recent)  # all of them take long after an edit of a header that most include
  fi
  say "clang-tidy"
  if bash scripts/tidy.sh "${which[@]}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
}

# Sanitizers need memory at the addresses they expect; kernels that randomise widely prevent it.
place=()
if setarch --addr-no-randomize true 2>/dev/null; then
  place=(setarch --addr-no-randomize)
fi
thread_sanitizer_works() {
  mkdir -p build
  echo 'int main() {}' | g++ -fsanitize=thread -x c++ - -o build/probe
  "${place[@]}" build/probe 2>/dev/null
}

bash scripts/setup.sh
export CUDAARCHS=${CUDAARCHS:-90-real}  # one architecture, if there is a CUDA toolkit
# CI compiles several sources at a time, which takes half the time, and links with a fast linker.
# clang-tidy looks at each source alone.  CI has no GPU, so its CUDA code is compiled quickly, not optimised.
faster=() patience=()
if [ -n "${CI:-}" ]; then
  export CCACHE_NOHASHDIR=1  # nobody debugs these builds, so clones may share them (cmake/ccache.cmake)
  faster=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld)
  # Code that is not inlined has stacks of sizes that ptxas does not know, and warns of.
  if [[ "$(nvcc --help 2>/dev/null)" == *Ofast-compile* ]]; then
    export NVCC_APPEND_FLAGS="--Ofast-compile=max -Xptxas=-suppress-stack-size-warning ${NVCC_APPEND_FLAGS:-}"
  fi
fi
if $nightly; then
  patience=(--timeout 3600)
fi
for stage in "${stages[@]}"; do
  case $stage in
    release | portable | tiles) test_preset "$stage" ;;
    asan) test_preset asan "${place[@]}" ;;
    tsan)
      if thread_sanitizer_works; then
        test_preset tsan "${place[@]}"
      else
        echo "test: ThreadSanitizer cannot run on this kernel: its tests are left out"
      fi
      ;;
    tidy) tidy ;;
  esac
done
say "done"
finished=true
