// Measures planning.
//
//   rehearsal  rehearses a whole training step: model built on meta, forward, backward, optimizer
//   survey     the same, with and without a survey, in turn: `adds_percent` is what the survey adds
//              to the processor's time, least of all
//   tape       rehearses forward and backward of a model that exists: tape, allocator and clock;
//              `visits` counts the nodes visited in both, s_per_visit is the time of one
//   layout     places the memory of a step of three micro-batches: its number of allocations, the
//              most bytes that are live at once, and the percentage of memory beyond these that
//              the layout takes, and that placement in program order takes
//   layout_mixed, layout_offload  the same for one micro-batch, where these most bytes are all that
//              is enough: if the layers recompute three different sets of values it is found; if
//              they offload, it is not at gpt2-1558m, and the search goes on to its limit

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>

#include "shared/device.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/offsets.h"
#include "spool/runtime/cpu/thread_pool.h"

namespace spool {
namespace {

void rehearse_step(benchmark::State& state, const std::string& model) {
  TrainingConfig config{.model = model_preset(model)->config, .dtype = DType::bf16, .batch = 4};
  config.chunks.loss_rows = 1024;
  const StepPlans plans = make_plans(config);
  for (auto _ : state) {
    rehearse(Machine{}, [&](MetaStream& stream) {
      Trainer trainer(config, plans, stream);
      trainer.rehearse_step();
    });
  }
}

void survey_step(benchmark::State& state, const std::string& model) {
  TrainingConfig config{.model = model_preset(model)->config, .dtype = DType::bf16, .batch = 4};
  config.chunks.loss_rows = 1024;
  const StepPlans plans = make_plans(config);
  std::array<double, 2> min{1e9, 1e9};  // without a survey, and with one
  bool first = false;
  for (auto _ : state) {
    first = !first;
    for (const bool survey : {first, !first}) {
      const double begin = process_processor_seconds();
      benchmark::DoNotOptimize(
          rehearse_step(describe_step(config), plans, Machine{}, {.survey = survey}));
      double& time = min[survey];
      time = std::min(time, process_processor_seconds() - begin);
    }
  }
  state.counters["adds_percent"] = 100 * (min[1] / min[0] - 1);
}

void visit_nodes(benchmark::State& state, const std::string& model) {
  MetaStream stream(Machine{});
  const auto built = model_preset(model)->config.make(DType::bf16, stream);
  const Spec ids{Shape{4, 1024}, DType::i32};
  const Tensor tokens(ids, stream), targets(ids, stream);
  size_t visits = 0;
  for (auto _ : state) {
    Tape tape(stream, {.backward_follows = true});
    tape.backward(built->loss(tape.input(tokens), tape.input(targets)));
    visits = 2 * tape.nodes().size();
    state.PauseTiming();
    for (Parameter* p : built->parameters()) p->grad = {};
    state.ResumeTiming();
  }
  state.counters["visits"] = static_cast<double>(visits);
  state.counters["s_per_visit"] = benchmark::Counter(
      static_cast<double>(visits),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// The peak of a step, less the bytes that are live between steps.
size_t peak_of_step(const TrainingConfig& config, const StepPlans& plans) {
  size_t persistent = 0;
  const Report report = rehearse(Machine{}, [&](MetaStream& stream) {
    Trainer trainer(config, plans, stream);
    persistent = stream.memory().live;
    trainer.rehearse_step();
  });
  return report.memory.peak - persistent;
}

void place_step(benchmark::State& state, const TrainingConfig& config, const StepPlans& plans) {
  const Lifetimes lifetimes = record_step(describe_step(config), plans, Machine{});
  const size_t enough = max_live(lifetimes);
  Layout layout;
  for (auto _ : state) layout = assign_offsets(lifetimes, enough);
  const auto wasted = [&](size_t bytes) {
    const auto live = static_cast<double>(layout.live);
    return 100 * (static_cast<double>(bytes) - live) / live;
  };
  state.counters["allocations"] = static_cast<double>(lifetimes.all.size());
  state.counters["live_bytes"] = static_cast<double>(layout.live);
  state.counters["waste_percent"] = wasted(layout.bytes);
  state.counters["waste_as_it_comes_percent"] = wasted(peak_of_step(config, plans));
}

void place_accumulating_step(benchmark::State& state, const std::string& model) {
  const TrainingConfig config{
      .model = model_preset(model)->config, .dtype = DType::bf16, .batch = 4, .accumulate = 3};
  place_step(state, config, make_plans(config));
}

// The first third of the layers keeps only sums, the second attention too, the last products too.
void place_mixed_step(benchmark::State& state, const std::string& model) {
  TrainingConfig config{.model = model_preset(model)->config, .dtype = DType::bf16, .batch = 8};
  config.chunks.loss_rows = 1024;
  StepPlans plans = make_plans(config);
  const Program program = rehearse_tape(describe_step(config), plans.step, Machine{}).program;
  const std::vector<std::string_view> recomputed{"layer_norm", "gelu", "linear", "attention"};
  constexpr std::array counts{4, 3, 2};  // how many of these, by third of the layers
  plans.step.placement.resize(program.values.size());
  for (ValueId v = 0; v < program.values.next_id(); ++v) {
    const auto third = static_cast<size_t>(3 * v / program.values.next_id());
    const auto end = recomputed.begin() + counts[third];
    if (std::find(recomputed.begin(), end, program.producer_name(v)) != end) {
      plans.step.placement[v] = Placement::recompute;
    }
  }
  place_step(state, config, plans);
}

void place_offloading_step(benchmark::State& state, const std::string& model) {
  const TrainingConfig config{
      .model = model_preset(model)->config, .dtype = DType::bf16, .batch = 4, .seq = 512};
  place_step(state, config,
             make_plans(config, {.norms = true, .activations = true, .offload = Offloading::all},
                        *named_machine("h200")));
}

void register_all() {
  for (const char* model : {"gpt2-124m", "gpt2-1558m", "llama-3.1-8b"}) {
    const std::string name = model;
    benchmark::RegisterBenchmark(("rehearsal/" + name).c_str(), [name](benchmark::State& s) {
      rehearse_step(s, name);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("survey/" + name).c_str(), [name](benchmark::State& s) {
      survey_step(s, name);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("layout/" + name).c_str(), [name](benchmark::State& s) {
      place_accumulating_step(s, name);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("layout_mixed/" + name).c_str(), [name](benchmark::State& s) {
      place_mixed_step(s, name);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("layout_offload/" + name).c_str(), [name](benchmark::State& s) {
      place_offloading_step(s, name);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("tape/" + name).c_str(), [name](benchmark::State& s) {
      visit_nodes(s, name);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  spool::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
