// Time and memory of recomputing, offloading, and keeping the optimizer's state off the device.
// The steps are those of GPT-2 124M, 4 rows of 1024 tokens, f32, the loss in chunks of 512 rows.
// Those of recompute/block/mlp/ROWS have their MLPs in chunks of so many rows.
// Steps under a policy take turns with steps that keep every value, so that both see the same
// machine.
//
//   time_ratio        seconds of a step / seconds of a step that keeps all, each the best measured
//   foretold_ratio    the same ratio, foretold
//   activation_ratio  foretold activation bytes / those of keeping all; activation bytes are the
//                     foretold peak less parameters, optimizer state and gradients at that instant
//   exposed           share of a measured step in which the device waits for copies
//   peak_bytes        measured peak; another one than foretold is an error
//   host_bytes        measured peak of the host's memory
//
// --device=cuda runs on a GPU; --model, --batch, --dtype and --chunk-loss choose another run;
// --spill=DIRECTORY adds a policy that offloads to disk.

#include <benchmark/benchmark.h>

#include <algorithm>

#include "shared/device.h"
#include "shared/token_batch.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/step_trace.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machine.h"

namespace spool {
namespace {

using benchmarks::random_batch;
using benchmarks::seconds_of;
using benchmarks::take_argument;

struct Setting {
  TrainingConfig config;
  Machine machine;
  Device device;
  std::string spill_directory;
};

size_t activation_bytes(const Report& foretold) {
  size_t bytes = foretold.memory.peak;
  for (const Purpose p : {Purpose::parameter, Purpose::optimizer, Purpose::gradient}) {
    bytes -= foretold.memory.at_peak_by[p];
  }
  return bytes;
}

// A run under a policy, in its own memory.
class Run {
 public:
  Run(const Setting& s, const Policy& policy)
      : planned_(plan_run(s.config, {.policy = policy, .spill_directory = s.spill_directory},
                          s.machine)),
        batch_(random_batch(s.config)) {
    stream_ = open_stream(s.device, foretold().memory.peak);
    trainer_ = std::make_unique<Trainer>(s.config, planned_.plans, *stream_);
    trainer_->initialise();
    step();
    best_ = 1e9;
  }
  double step() {
    const double seconds = seconds_of([&] {
      trainer_->step(done_++, batch_);
      trainer_->result();
      stream_->synchronize();
    });
    best_ = std::min(best_, seconds);
    return seconds;
  }
  double exposed() {
    const auto trace = std::make_shared<Trace>();
    {
      const Traced traced(*stream_, trace);
      step();
    }
    return exposed_copies(trace->spans());
  }
  double best() const { return best_; }
  const Report& foretold() const { return planned_.foretold; }
  size_t peak() const { return stream_->memory().peak; }
  size_t host_peak() const { return trainer_->host_memory().peak; }

 private:
  PlannedRun planned_;
  TokenBatch batch_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Trainer> trainer_;
  int64_t done_ = 0;
  double best_ = 1e9;
};

void compare(benchmark::State& state, const Setting& setting, Run& keeping_all,
             const Policy& policy) {
  Run run(setting, policy);
  for (auto _ : state) {
    keeping_all.step();
    state.SetIterationTime(run.step());
  }
  const auto ratio = [](auto a, auto b) { return static_cast<double>(a) / static_cast<double>(b); };
  state.counters["time_ratio"] = ratio(run.best(), keeping_all.best());
  state.counters["foretold_ratio"] = ratio(run.foretold().seconds, keeping_all.foretold().seconds);
  state.counters["activation_ratio"] =
      ratio(activation_bytes(run.foretold()), activation_bytes(keeping_all.foretold()));
  state.counters["exposed"] = run.exposed();
  check(run.peak() == run.foretold().memory.peak, "policies: the peak is ", run.peak(),
        " bytes, but was foretold as ", run.foretold().memory.peak);
  state.counters["peak_bytes"] = static_cast<double>(run.peak());
  state.counters["host_bytes"] = static_cast<double>(run.host_peak());
}

Policy policy_of(const char* recompute, Offloading offload,
                 OptimizerState optimizer_state = OptimizerState::device) {
  Policy policy{.offload = offload, .optimizer_state = optimizer_state};
  set_recompute(policy, recompute);
  return policy;
}

void add_all(const Setting& setting, Run& keeping_all) {
  const auto add = [&](const std::string& name, const Policy& policy, const Setting& of) {
    benchmark::RegisterBenchmark(
        name.c_str(),
        [=, &keeping_all](benchmark::State& state) { compare(state, of, keeping_all, policy); })
        ->UseManualTime()
        ->Iterations(3)
        ->Unit(benchmark::kMillisecond);
  };
  constexpr auto none = Offloading::none;
  add("recompute/norms,gelu", policy_of("norms,gelu", none), setting);
  add("recompute/norms,gelu,attention", policy_of("norms,gelu,attention", none), setting);
  add("recompute/block", policy_of("block", none), setting);
  for (const int64_t rows : {2048, 8192, 16384}) {
    if (rows >= setting.config.batch * setting.config.seq) continue;
    Setting in_chunks = setting;
    in_chunks.config.mlp_chunk = rows;
    add(sentence("recompute/block/mlp/", rows), policy_of("block", none), in_chunks);
  }
  add("recompute/block/offload/residual", policy_of("block", Offloading::residual), setting);
  add("offload/residual", policy_of("none", Offloading::residual), setting);
  add("offload/all", policy_of("none", Offloading::all), setting);
  add("optimizer/streamed", policy_of("none", none, OptimizerState::streamed), setting);
  add("optimizer/cpu", policy_of("none", none, OptimizerState::cpu), setting);
  if (setting.spill_directory.empty()) return;
  Policy to_disk = policy_of("block", Offloading::residual);
  to_disk.target = OffloadTarget::disk;
  add("recompute/block/offload/residual/disk", to_disk, setting);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  return benchmarks::report_errors([&] {
    Setting s;
    s.device = parse_device(take_argument(argc, argv, "device", "cpu"));
    s.config = training_preset(take_argument(argc, argv, "model", "gpt2-124m"));
    s.config.batch = std::stoll(take_argument(argc, argv, "batch", "4"));
    s.config.dtype = *parse<DType>(take_argument(argc, argv, "dtype", "f32"));
    s.config.loss_chunk = std::stoll(take_argument(argc, argv, "chunk-loss", "512"));
    s.spill_directory = take_argument(argc, argv, "spill", "");
    s.machine = measure_machine(s.device, s.config.dtype);
    benchmark::Initialize(&argc, argv);
    Run keeping_all(s, {});
    add_all(s, keeping_all);
    benchmark::RunSpecifiedBenchmarks();
  });
}
