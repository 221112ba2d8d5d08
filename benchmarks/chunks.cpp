// Measures what chunks cost and save.  Names end in numbers of rows.
//
//   mlp             an MLP (C 768, F 3072, 4096 rows, f32, one thread) in one chunk, which
//                   recomputes too, and in chunks, in turn: `ratio` of the least processor times,
//                   forward and backward; `forward_ratio`, forward alone, without recording
//   step            a rehearsed step of gpt2-124m on an h200 (bf16, T 1024, blocks recomputed) by
//                   batch and rows of the loss and the MLPs, against whole MLPs: `peak`, `time`,
//                   and `block_bytes`, what activations and workspace hold at the peak, less the
//                   inputs of the blocks, as ratios
//   rehearsal       rehearses a step of gpt2-1558m (bf16, B 4, T 1024, h200)
//   layout          lays out that step: percentage of memory beyond the live bytes
//   evaluation      a rehearsed evaluation of gpt2-124m with a context of 8192 (B 1, T 8192, f32, a
//                   cpu of one thread) by rows of the loss and the MLPs, against neither: `bytes`,
//                   what activations and workspace hold at the peak, and `time`, as ratios
//   longest         the longest T of such an evaluation (context T) in 2 GiB, rehearsed: `whole`,
//                   `chunked` as `spool eval --memory` chooses, and their ratio
//   head            the loss of a head (V 50304, C 768, 4096 rows, f32, one thread) with its
//                   gradients, in one chunk and in chunks, in turn: `ratio` of the least times;
//                   `beside`, bytes beside inputs and gradients, over rows * V * 4
//   head_rehearsed  32768 rows: these bytes over those of one chunk
//
// --device=cuda measures the head alone on a GPU: 32768 rows, bf16, by the clock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>

#include "shared/device.h"
#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/normal.h"
#include "spool/models/families/gpt2.h"
#include "spool/models/inference/evaluation_plan.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/offsets.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

using benchmarks::seconds_of;

// x + linear(gelu(linear(layer_norm(x))))
struct Mlp {
  static constexpr int64_t N = 4096, C = 768, F = 3072;

  explicit Mlp(Stream& on) : stream(on) {
    uint32_t number = 0;
    const auto make = [&](Name name, const Shape& shape) {
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
  std::array<std::array<double, 2>, 2> min{{{1e9, 1e9}, {1e9, 1e9}}};  // [recording][in chunks]
  for (auto _ : state) {
    for (const bool recording : {false, true}) {
      for (const bool chunked : {false, true}) {
        const double begin = process_processor_seconds();
        mlp.run(plans[chunked], recording);
        double& time = min[recording][chunked];
        time = std::min(time, process_processor_seconds() - begin);
      }
    }
  }
  state.counters["ratio"] = min[1][1] / min[1][0];
  state.counters["forward_ratio"] = min[0][1] / min[0][0];
}
BENCHMARK(run_mlp)->Name("mlp")->RangeMultiplier(2)->Range(64, 2048)->Iterations(7);

TrainingConfig step_config(const char* model, int64_t batch, int64_t loss, int64_t mlp) {
  TrainingConfig config{.model = *gpt2_preset(model), .dtype = DType::bf16, .batch = batch};
  config.chunks.loss_rows = loss;
  config.chunks.mlp_rows = mlp;
  return config;
}

struct RehearsedChunks {
  double peak = 0, seconds = 0, block_bytes = 0;
};

RehearsedChunks rehearse_in_chunks(const TrainingConfig& config) {
  const Machine h200 = *named_machine("h200");
  const StepPlans plans = make_plans(config, {.block = true}, h200);
  const RehearsedStep step = rehearse_step(describe_step(config), plans, h200, {});
  const MemoryStats& memory = step.report.memory;
  const int64_t inputs =
      config.model.shape().layers * config.batch * config.seq * config.model.shape().channels * 2;
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
  const StepPlans plans = make_plans(config, {}, h200);
  for (auto _ : state)
    benchmark::DoNotOptimize(rehearse_step(describe_step(config), plans, h200, {}));
}
BENCHMARK(run_rehearsal)
    ->Name("rehearsal")
    ->RangeMultiplier(2)
    ->Range(128, 1024)
    ->Unit(benchmark::kMillisecond);

void run_layout(benchmark::State& state) {
  const TrainingConfig config = step_config("gpt2-1558m", 4, 1024, state.range(0));
  const Machine h200 = *named_machine("h200");
  const StepPlans plans = make_plans(config, {}, h200);
  const Lifetimes lifetimes = record_step(describe_step(config), plans, h200);
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

Machine one_thread() { return {.architecture = CpuArchitecture{.threads = 1}}; }

EvaluationShape long_evaluation(int64_t T) {
  Gpt2Config model = *gpt2_preset("gpt2-124m");
  model.context = T;
  return {.model = model, .batch = 1, .seq = T};
}

Report rehearse_evaluation(const EvaluationShape& shape, const ChunkRows& rows) {
  const Plan plan = plan_evaluation(evaluation_program(shape), rows);
  return rehearse(one_thread(), [&](MetaStream& stream) {
    Evaluation(shape, plan, stream).evaluator().rehearse_mean_loss();
  });
}

void run_evaluation(benchmark::State& state) {
  const EvaluationShape shape = long_evaluation(8192);
  Report whole, chunked;
  for (auto _ : state) {
    whole = rehearse_evaluation(shape, {});
    chunked = rehearse_evaluation(shape, {.loss = state.range(0), .mlp = state.range(1)});
  }
  const auto bytes = [](const Report& r) {
    return static_cast<double>(r.memory.at_peak_by[Purpose::activation] +
                               r.memory.at_peak_by[Purpose::workspace]);
  };
  state.counters["bytes"] = bytes(chunked) / bytes(whole);
  state.counters["time"] = chunked.seconds / whole.seconds;
}
BENCHMARK(run_evaluation)
    ->Name("evaluation")
    ->ArgsProduct({{256, 512}, {1024, 2048}})
    ->Unit(benchmark::kMillisecond);

void run_longest(benchmark::State& state) {
  constexpr size_t budget = size_t{2} << 30;
  constexpr int64_t step = 128;
  const auto longest = [&](const auto& peak_of) {
    int64_t fits = 0, fails = 2048;  // times `step` tokens
    while (fails - fits > 1) {
      const int64_t middle = (fits + fails) / 2;
      (peak_of(middle * step) <= budget ? fits : fails) = middle;
    }
    return static_cast<double>(fits * step);
  };
  double whole = 0, chunked = 0;
  for (auto _ : state) {
    whole =
        longest([](int64_t T) { return rehearse_evaluation(long_evaluation(T), {}).memory.peak; });
    chunked = longest([](int64_t T) {
      return plan_evaluation_within(budget, long_evaluation(T), one_thread()).foretold.memory.peak;
    });
  }
  state.counters["whole"] = whole;
  state.counters["chunked"] = chunked;
  state.counters["ratio"] = chunked / whole;
}
BENCHMARK(run_longest)->Name("longest")->Iterations(1)->Unit(benchmark::kMillisecond);

// linear_cross_entropy with the gradient formed in forward.
struct Head {
  static constexpr int64_t C = 768, V = 50304;

  Head(Stream& on, int64_t rows, DType dtype = DType::f32)
      : stream(on),
        N(rows),
        weight{.name = "head", .data = Tensor({Shape{V, C}, dtype}, stream)},
        x({Shape{N, C}, dtype}, stream),
        targets({Shape{N}, DType::i32}, stream),
        loss_scale({Shape{1}, DType::f32}, stream) {
    launch(NormalFill{.out = weight.data, .deviation = 0.02f, .tensor = 0}, stream);
    launch(NormalFill{.out = x, .deviation = 1, .tensor = 1}, stream);
    launch(Fill{.out = loss_scale, .value = 1.0f / static_cast<float>(N)}, stream);
    stream.upload(targets.view().data(), targets.nbytes(),
                  [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0}); });
  }

  void run(int64_t chunk) {
    const int chunks = static_cast<int>(N / chunk);
    Tape tape(stream, {.plan = {.chunks = std::vector{chunks}},
                       .backward_follows = true,
                       .loss_scale = loss_scale});
    tape.backward(
        linear_cross_entropy(tape.input(x, /*needs_grad=*/true), weight, tape.input(targets), {}));
    weight.grad = {};
    stream.synchronize();
  }

  // The peak of a run, without its inputs and the gradients.
  double bytes_beside(int64_t chunk) {
    const size_t before = stream.memory().live;
    stream.arena().take_max_live();
    run(chunk);
    const size_t gradients = weight.data.nbytes() + x.nbytes();
    return static_cast<double>(stream.arena().take_max_live() - before - gradients);
  }

  Stream& stream;
  int64_t N;
  Parameter weight;
  Tensor x, targets, loss_scale;
};

void run_head(benchmark::State& state) {
  const int64_t rows = state.range(0);
  CpuStream stream(size_t{3} << 30, 1);
  Head head(stream, 4096);
  std::array<double, 2> min{1e9, 1e9};
  for (auto _ : state) {
    for (const bool chunked : {false, true}) {
      const double begin = process_processor_seconds();
      head.run(chunked ? rows : head.N);
      min[chunked] = std::min(min[chunked], process_processor_seconds() - begin);
    }
  }
  state.counters["ratio"] = min[1] / min[0];
  state.counters["beside"] =
      head.bytes_beside(rows) / (static_cast<double>(rows * Head::V) * sizeof(float));
}
BENCHMARK(run_head)->Name("head")->RangeMultiplier(2)->Range(512, 2048)->Iterations(5);

void run_head_on_cuda(benchmark::State& state, int64_t rows) {
  const auto stream = open_stream({DeviceType::cuda}, size_t{8} << 30);
  Head head(*stream, 32768, DType::bf16);
  std::array<double, 2> min{1e9, 1e9};
  head.run(rows);
  head.run(head.N);
  for (auto _ : state) {
    for (const bool chunked : {false, true}) {
      const double seconds = seconds_of([&] { head.run(chunked ? rows : head.N); });
      min[chunked] = std::min(min[chunked], seconds);
    }
  }
  state.counters["ratio"] = min[1] / min[0];
}

void rehearse_head(benchmark::State& state) {
  MetaStream stream(one_thread());
  Head head(stream, 32768);
  for (auto _ : state) {
    state.counters["bytes"] = head.bytes_beside(state.range(0)) / head.bytes_beside(head.N);
  }
}
BENCHMARK(rehearse_head)->Name("head_rehearsed")->RangeMultiplier(2)->Range(256, 2048);

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  return benchmarks::report_errors([&] {
    if (benchmarks::take_argument(argc, argv, "device", "cpu") == "cuda") {
      benchmark::ClearRegisteredBenchmarks();
      for (const int64_t rows : {2048, 4096}) {
        benchmark::RegisterBenchmark(
            sentence("head_on_cuda/", rows).c_str(),
            [rows](benchmark::State& state) { run_head_on_cuda(state, rows); })
            ->Iterations(10);
      }
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
  });
}
