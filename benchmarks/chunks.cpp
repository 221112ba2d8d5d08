// What regions in chunks cost and save.
//
//   mlp/ROWS   an MLP (C 768, F 3072, 4096 rows, f32, one thread) in one chunk and in chunks of so
//              many rows, in turn: `ratio` is the least processor time in chunks over the least in
//              one chunk, which recomputes too, of forward and backward; `forward_ratio` that of
//              forward alone, without recording
//   step/BATCH/LOSS/ROWS  a rehearsed step of gpt2-124m on an h200 (bf16, T 1024, blocks
//   recomputed,
//              the loss in chunks of LOSS rows) with the MLPs in chunks of ROWS, against whole
//              MLPs: `peak` and `time`, and `block_bytes`, what activations and workspace hold at
//              the peak, less the inputs of the blocks, each as a ratio
//   rehearsal/ROWS   rehearses a step of gpt2-1558m (bf16, B 4, T 1024, h200) with its MLPs in
//   chunks layout/ROWS      lays out that step: the percentage of memory beyond the live bytes

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/ops.h"
#include "spool/kernels/normal.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/machine.h"
#include "spool/planner/offsets.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

double cpu_seconds_of_chunks() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// x + linear(gelu(linear(layer_norm(x))))
struct Mlp {
  static constexpr int64_t N = 4096, C = 768, F = 3072;

  explicit Mlp(Stream& on) : stream(on) {
    uint32_t number = 0;
    const auto make = [&](const char* name, const Shape& shape) {
      parameters.push_back({.name = name, .data = Tensor({shape, DType::f32}, stream)});
      launch(NormalFill{.out = parameters.back().data, .deviation = 0.02f, .tensor = number++},
             stream);
    };
    make("norm", {C});
    make("norm bias", {C});
    make("fc", {F, C});
    make("fc bias", {F});
    make("projection", {C, F});
    make("projection bias", {C});
    for (Tensor* t : {&x, &dy}) {
      *t = Tensor({Shape{N, C}, DType::f32}, stream);
      launch(NormalFill{.out = *t, .deviation = 1, .tensor = number++}, stream);
    }
  }

  Var apply(Tape& tape) {
    std::vector<Parameter>& p = parameters;
    const Var in = tape.input(x, /*needs_grad=*/true);
    Var h = layer_norm(in, p[0], p[1], 1e-5);
    h = linear(h, p[2], p[3]);
    h = gelu(h, GeluForm::tanh);
    h = linear(h, p[4], p[5]);
    return add(in, h);
  }

  void run(const Plan& plan, bool recording) {
    Tape tape(stream, {.plan = plan, .recording = recording});
    const Var y = apply(tape);
    if (recording) tape.backward({Root{y, dy}});
    for (Parameter& p : parameters) p.grad = {};
    stream.synchronize();
  }

  Stream& stream;
  std::vector<Parameter> parameters = {};
  Tensor x, dy;
};

Plan in_chunks(int64_t rows) {
  MetaStream meta(Machine{});
  Mlp mlp(meta);
  Tape tape(meta);
  tape.observe(mlp.apply(tape).id());
  const NodeId last = tape.nodes().next_id() - 1;
  if (rows == Mlp::N) return {.regions = {{.first = 0, .last = last}}};
  return {.regions = {{.first = 0,
                       .last = last,
                       .chunks = static_cast<int>(Mlp::N / rows),
                       .leaves = find_leaves(tape.program(), 0, last)}}};
}

void run_mlp(benchmark::State& state) {
  CpuStream stream(size_t{1} << 30, 1);
  Mlp mlp(stream);
  const std::array<Plan, 2> plans{in_chunks(Mlp::N), in_chunks(state.range(0))};
  std::array<std::array<double, 2>, 2> least{{{1e9, 1e9}, {1e9, 1e9}}};  // [recording][in chunks]
  for (auto _ : state) {
    for (const bool recording : {false, true}) {
      for (const bool chunked : {false, true}) {
        const double begin = cpu_seconds_of_chunks();
        mlp.run(plans[chunked], recording);
        double& time = least[recording][chunked];
        time = std::min(time, cpu_seconds_of_chunks() - begin);
      }
    }
  }
  state.counters["ratio"] = least[1][1] / least[1][0];
  state.counters["forward_ratio"] = least[0][1] / least[0][0];
}
BENCHMARK(run_mlp)->Name("mlp")->RangeMultiplier(2)->Range(64, 2048)->Iterations(7);

TrainingConfig step_config(const char* model, int64_t batch, int64_t loss, int64_t mlp) {
  TrainingConfig config{.model = *gpt2_preset(model), .dtype = DType::bf16, .batch = batch};
  config.loss_chunk = loss;
  config.mlp_chunk = mlp;
  return config;
}

struct RehearsedChunks {
  double peak = 0, seconds = 0, block_bytes = 0;
};

RehearsedChunks rehearse_in_chunks(const TrainingConfig& config) {
  const Machine h200 = *named_machine("h200");
  const TrainingPlans plans = make_plans(config, {.block = true}, h200);
  const RehearsedStep step = rehearse_step(config, plans, h200, {});
  const MemoryStats& memory = step.report.memory;
  const int64_t inputs =
      config.model.layers * config.batch * config.seq * config.model.channels * 2;
  return {.peak = static_cast<double>(memory.peak),
          .seconds = step.report.seconds,
          .block_bytes = static_cast<double>(memory.at_peak_by[Purpose::activation] +
                                             memory.at_peak_by[Purpose::workspace]) -
                         static_cast<double>(inputs)};
}

void run_step(benchmark::State& state) {
  const auto rehearse = [&](int64_t mlp) {
    return rehearse_in_chunks(step_config("gpt2-124m", state.range(0), state.range(1), mlp));
  };
  RehearsedChunks whole, chunked;
  for (auto _ : state) {
    whole = rehearse(0);
    chunked = rehearse(state.range(2));
  }
  state.counters["peak"] = chunked.peak / whole.peak;
  state.counters["time"] = chunked.seconds / whole.seconds;
  state.counters["block_bytes"] = chunked.block_bytes / whole.block_bytes;
}
BENCHMARK(run_step)
    ->Name("step")
    ->ArgsProduct({{32}, {2048}, {1024, 2048, 4096, 8192, 16384}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_step)
    ->Name("step")
    ->ArgsProduct({{4}, {512}, {256, 512, 1024}})
    ->Unit(benchmark::kMillisecond);

// In 32 to 4 chunks of the 4096 rows.
void run_rehearsal(benchmark::State& state) {
  const TrainingConfig config = step_config("gpt2-1558m", 4, 1024, state.range(0));
  const Machine h200 = *named_machine("h200");
  const TrainingPlans plans = make_plans(config, {}, h200);
  for (auto _ : state) benchmark::DoNotOptimize(rehearse_step(config, plans, h200, {}));
}
BENCHMARK(run_rehearsal)
    ->Name("rehearsal")
    ->RangeMultiplier(2)
    ->Range(128, 1024)
    ->Unit(benchmark::kMillisecond);

void run_layout(benchmark::State& state) {
  const TrainingConfig config = step_config("gpt2-1558m", 4, 1024, state.range(0));
  const Machine h200 = *named_machine("h200");
  const TrainingPlans plans = make_plans(config, {}, h200);
  const Lifetimes lifetimes = record_step(config, plans, h200);
  Layout layout;
  for (auto _ : state) layout = assign_offsets(lifetimes);
  const auto live = static_cast<double>(layout.live);
  state.counters["waste_percent"] = 100 * (static_cast<double>(layout.bytes) - live) / live;
  state.counters["allocations"] = static_cast<double>(lifetimes.all.size());
}
BENCHMARK(run_layout)
    ->Name("layout")
    ->RangeMultiplier(2)
    ->Range(128, 1024)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spool

BENCHMARK_MAIN();
