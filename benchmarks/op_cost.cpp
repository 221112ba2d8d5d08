// Measures what an op costs besides its kernels: the processor time, per op, of the thread that
// records a tape of 100 ops on one number and walks it forward and backward.
//
// `forward`, `backward` and `end` (the tape's destructor) are ns per op, `ns` their sum, including
// the launches of kernels; on the inline stream, also the kernels.  `launches` is their number per
// op, and launch/... are the ns of launching a kernel that does nothing.  The op `nothing` has one
// such kernel forward and one backward.  On meta kernels are only asked for their cost.  The queued
// stream has a thread that runs them, and waking it up counts in the time of a launch.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"

namespace spool {
namespace {

constexpr int ops = 100;
const Spec number{Shape{1, 1}};

struct NoWork {
  static constexpr const char* name = "no_work";
  View y, x;
  Cost cost() const { return {}; }
};
void run(const NoWork&, CpuStream&) {}

struct Nothing final : Op {
  const char* name() const override { return "nothing"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    f.launch(NoWork{.y = f.outputs<1>()[0], .x = f.inputs<1>()[0]});
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    b.launch(NoWork{.y = b.grad_input(0).view, .x = x});
  }
};

double nanoseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

using ApplyOp = std::function<Var(const Var&, Parameter& weight)>;
using Open = std::function<std::unique_ptr<Stream>()>;

struct Times {
  double forward = 0, backward = 0, end = 0;
};

void run_tape(Stream& stream, const ApplyOp& op, Parameter& weight, Times& sum) {
  const double begin = nanoseconds();
  double recorded = 0, walked = 0;
  {
    Tape tape(stream);
    Var h = tape.input(Tensor(number, stream), /*needs_grad=*/true);
    for (int i = 0; i < ops; ++i) h = op(h, weight);
    recorded = nanoseconds();
    tape.backward({Root{h, Tensor(number, stream)}});
    walked = nanoseconds();
  }
  sum.forward += recorded - begin;
  sum.backward += walked - recorded;
  sum.end += nanoseconds() - walked;
}

void measure_op(benchmark::State& state, const Open& open, const ApplyOp& op) {
  const auto stream = open();
  Parameter weight{.name = "weight"};
  weight.data = make_tensor<float>(number.shape, std::vector<float>{1}, *stream);
  Times sum;
  for (auto _ : state) {
    run_tape(*stream, op, weight, sum);
    stream->synchronize();
  }
  const double all = ops * static_cast<double>(state.iterations());
  state.counters["forward"] = sum.forward / all;
  state.counters["backward"] = sum.backward / all;
  state.counters["end"] = sum.end / all;
  state.counters["ns"] = (sum.forward + sum.backward + sum.end) / all;
  state.counters["launches"] = static_cast<double>(stream->launches()) / all;
  weight.grad = {};
}

void measure_launch(benchmark::State& state, const Open& open) {
  const auto stream = open();
  const Tensor x(number, *stream);
  double sum = 0;
  for (auto _ : state) {
    const double begin = nanoseconds();
    for (int i = 0; i < ops; ++i) launch(NoWork{.y = x, .x = x}, *stream);
    sum += nanoseconds() - begin;
    stream->synchronize();
  }
  state.counters["ns"] = sum / (ops * static_cast<double>(state.iterations()));
}

std::unique_ptr<Stream> open_cpu(const char* is_inline) {
  ::setenv("SPOOL_CPU_INLINE", is_inline, /*overwrite=*/1);
  return std::make_unique<CpuStream>(size_t{16} << 20, /*threads=*/1);
}

void add_benchmarks(const std::string& stream, const Open& open) {
  const std::pair<const char*, ApplyOp> all[] = {
      {"nothing", [](const Var& h, Parameter&) { return apply<Nothing>(h.tape(), {h}); }},
      {"gelu", [](const Var& h, Parameter&) { return gelu(h); }},
      {"add", [](const Var& h, Parameter&) { return add(h, h); }},
      {"linear", [](const Var& h, Parameter& w) { return linear(h, w); }},
  };
  for (const auto& [name, op] : all) {
    benchmark::RegisterBenchmark((std::string(name) + "/" + stream).c_str(),
                                 [open, op = op](auto& state) { measure_op(state, open, op); });
  }
  benchmark::RegisterBenchmark(("launch/" + stream).c_str(),
                               [open](auto& state) { measure_launch(state, open); });
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  add_benchmarks("meta", [] { return std::make_unique<MetaStream>(Machine{}); });
  add_benchmarks("inline", [] { return open_cpu("1"); });
  add_benchmarks("queued", [] { return open_cpu("0"); });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
