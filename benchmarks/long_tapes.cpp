// Measures how a step's bookkeeping grows with the length of its tape, on meta: the processor time
// of a rehearsed step of n ops.  Twice the ops should take twice the time; `ratio` is the time for
// 16,000 ops over that for 8,000, each the minimum of several, `us_per_op` that for 16,000 per op.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "spool/autograd/ops.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

const Spec small{Shape{4}, DType::f32};

// One rehearsed step of n gelus in a row.
void rehearse_chain(int n, const Plan& plan) {
  MetaStream stream{Machine{}};
  HostLink link(stream, MetaStream::unlimited);
  Offloader offloader(link);
  Tape tape(stream, {.plan = plan, .offloader = &offloader});
  Var h = tape.input(Tensor(small, stream), true);
  for (int i = 0; i < n; ++i) h = gelu(h);
  tape.backward({Root{h, Tensor(small, stream)}});
}

Plan everywhere(Placement placement, int n) {
  return {.placement = std::vector(static_cast<size_t>(n) + 1, placement)};
}

void offload(int n) { rehearse_chain(n, everywhere(Placement::offload, n)); }

// Backward reads each value long before its planned fetch.
void offload_by_plan(int n) {
  Plan plan = everywhere(Placement::offload, n);
  for (ValueId v = 0; v <= n; ++v)
    plan.offloads.push_back({.value = v, .release = v + 3, .fetch = 0});
  rehearse_chain(n, plan);
}

void recompute(int n) { rehearse_chain(n, everywhere(Placement::recompute, n)); }

// One checkpoint that reads n values.
void checkpoint_of_many(int n) {
  MetaStream stream{Machine{}};
  Tape tape(stream);
  std::vector<Var> inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(tape.input(Tensor(small, stream), true));
  Var sum = inputs.front();
  checkpoint(tape, [&] {
    for (const Var& x : inputs) sum = gelu(add(sum, x));
  });
  tape.backward({Root{sum, Tensor(small, stream)}});
}

// A checkpoint that reads n values computed in the one around it.
void nested_checkpoints(int n) {
  MetaStream stream{Machine{}};
  Tape tape(stream);
  const Var x = tape.input(Tensor(small, stream), true);
  Var sum = x;
  checkpoint(tape, [&] {
    std::vector<Var> scaled;
    for (int i = 0; i < n; ++i) scaled.push_back(scale(x, i));
    checkpoint(tape, [&] {
      for (const Var& y : scaled) sum = add(sum, y);
    });
    sum = gelu(sum);
  });
  tape.backward({Root{sum, Tensor(small, stream)}});
}

// Processor seconds of this thread.
double seconds_of(const std::function<void(int)>& step, int n) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  step(n);
  return now() - begin;
}

void measure(benchmark::State& state, const std::function<void(int)>& step) {
  constexpr int n = 8000;
  double once = 1e9, twice = 1e9;
  for (auto _ : state) {
    once = std::min(once, seconds_of(step, n));
    const double seconds = seconds_of(step, 2 * n);
    twice = std::min(twice, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["ratio"] = twice / once;
  state.counters["us_per_op"] = twice / (2 * n) * 1e6;
}

void add_benchmark(const char* name, void (*step)(int)) {
  benchmark::RegisterBenchmark(name, [step](benchmark::State& state) { measure(state, step); })
      ->UseManualTime()
      ->Iterations(10)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  add_benchmark("recompute", recompute);
  add_benchmark("offload", offload);
  add_benchmark("offload_by_plan", offload_by_plan);
  add_benchmark("checkpoint_of_many", checkpoint_of_many);
  add_benchmark("nested_checkpoints", nested_checkpoints);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
