// What regions in chunks cost and save.
//
//   mlp/ROWS   an MLP (C 768, F 3072, 4096 rows, f32, one thread) in one chunk and in chunks of so
//              many rows, in turn: `ratio` is the least processor time in chunks over the least in
//              one chunk, which recomputes too, of forward and backward; `forward_ratio` that of
//              forward alone, without recording

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/ops.h"
#include "spool/kernels/normal.h"
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

}  // namespace
}  // namespace spool

BENCHMARK_MAIN();
