// One optimizer step of GPT-2 against the matrix products of its linear layers alone, forward and
// backward, through the same oneDNN in the same process.
//
//   gemm_ratio    seconds of a step / seconds of its products, each the best of the repetitions
//   tokens_per_s  of the step
//
// The products are oneDNN's own primitives on all threads, as fast as that library makes them: they
// do not go through Spool's kernels.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "shared/products.h"
#include "spool/models/trainer.h"
#include "spool/runtime/random.h"

namespace spool {
namespace {

struct Case {
  Gpt2Config model;
  DType dtype;
  int64_t B, T;
};

TrainingConfig training(const Case& c) {
  return {.model = c.model, .dtype = c.dtype, .batch = c.B, .seq = c.T, .loss_chunk = 1024};
}

void rows(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) {
  Random random(1, static_cast<uint64_t>(index));
  for (int32_t& t : tokens) t = static_cast<int32_t>(random.next() % 50000);
  std::ranges::copy(tokens, targets.begin());
}

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Steps and products take turns, so that both see the same machine.
void step(benchmark::State& state, const Case& c) {
  const TrainingConfig config = training(c);
  const TrainingPlans plans = make_plans(config);
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const Machine machine{.architecture = CpuArchitecture{.threads = threads}};
  const Report foretold = rehearse_training(config, plans, machine);
  const auto stream = open_stream({DeviceType::cpu}, foretold.memory.peak, threads);
  Trainer trainer(config, plans, *stream);
  trainer.initialise();
  trainer.step(0, rows);
  trainer.result();
  benchmarks::Products products(c.model, c.dtype, c.B * c.T);
  products.run();
  double step_seconds = 1e9, product_seconds = 1e9;
  int64_t done = 1;
  for (auto _ : state) {
    const double seconds = seconds_of([&] {
      trainer.step(done++, rows);
      trainer.result();
    });
    state.SetIterationTime(seconds);
    step_seconds = std::min(step_seconds, seconds);
    product_seconds = std::min(product_seconds, seconds_of([&] { products.run(); }));
  }
  state.counters["gemm_ratio"] = step_seconds / product_seconds;
  state.counters["tokens_per_s"] = static_cast<double>(c.B * c.T) / step_seconds;
  state.counters["step_ms"] = step_seconds * 1e3;
  state.counters["products_ms"] = product_seconds * 1e3;
  state.counters["peak_bytes"] = static_cast<double>(stream->memory().peak);
}

void register_case(const std::string& model, DType dtype, int64_t B, int64_t T) {
  const Case c{*gpt2_preset(model), dtype, B, T};
  const std::string title = sentence("step/", model, "/", name(dtype), "/B:", B, "/T:", T);
  benchmark::RegisterBenchmark(title.c_str(), step, c)
      ->UseManualTime()
      ->Iterations(7)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using spool::DType;
  benchmark::Initialize(&argc, argv);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    spool::register_case("gpt2-124m", dtype, 4, 64);
    spool::register_case("gpt2-124m", dtype, 4, 256);
    spool::register_case("gpt2-124m", dtype, 1, 1024);
  }
  spool::register_case("gpt2-tiny", DType::f32, 16, 128);
  benchmark::RunSpecifiedBenchmarks();
}
