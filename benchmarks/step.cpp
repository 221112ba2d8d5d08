// Measures one optimizer step of a model.
//
// On the CPU (the default) it is compared with its matrix products alone, those that a rehearsal of
// the step launches, in the same process and on as many threads: by Spool's kernels, and each as
// one whole product of oneDNN, if the build has it and it has fast products for the processor.
//
//   step_ms          best time of a step
//   tokens_per_s     by step_ms
//   products_ms      best time of its products by Spool's kernels
//   onednn_ms        best time of the same products by oneDNN; a label says why it is absent
//   others_ms        time to move the bytes of its other kernels at copied_gb_per_s
//   copied_gb_per_s  rate of a large copy, bytes read and written, measured before the step
//   over_products    step_ms / products_ms
//   over_onednn      step_ms / onednn_ms
//   over_both        step_ms / (products_ms + others_ms)
//   peak_bytes       measured peak
//
// Steps and products take turns; the products have memory of their own.
//
// `adapters` trains low-rank adapters (LoRA), and in turns with that all of the model: full_ms and
// adapters_ms, medians of the time of all processors; over_full, their ratio; and the peaks.
//
// `homes` trains with all parameters and gradients on the host, and in turns with that resident,
// with the state streamed in both: resident_ms and homes_ms, medians of the time of all processors;
// over_resident, their ratio; and the peaks.
//
// With --device=cuda it is compared with the rate of the device:
//
//   step_ms         median time of a step, several enqueued in a row
//   alone_ms        median time of a step that the host waits for
//   host_ms         median time that the host takes to enqueue a step
//   tokens_per_s    by step_ms
//   flop_per_s      by step_ms: those of the step's matrix products, which for GPT-2 are
//                   6 (12 L C^2 + V C) a token, and 12 L C T a token for attention of C channels
//   mfu             flop_per_s / 989 TFLOP/s, the data sheet's rate of an H100 or H200 in bf16
//   peak_bytes      measured peak; another one than foretold_bytes is an error
//
// There the optimizer is also timed alone: it reads and writes 30 bytes for each parameter.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "shared/device.h"
#include "shared/onednn_products.h"
#include "shared/step_products.h"
#include "shared/timed_benchmark.h"
#include "shared/token_batch.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"

namespace spool {
namespace {

using benchmarks::median;
using benchmarks::OnednnProducts;
using benchmarks::seconds_of;
using benchmarks::StepKernels;
using benchmarks::StepProducts;

struct Case {
  ModelConfig model = {};
  DType dtype = DType::f32;
  int64_t B = 1, T = 1024;
  int64_t loss_chunk = 1024;
  bool graph = true;  // on cuda
  int64_t lora = 0;   // rank of adapters that are trained alone; 0: all is trained
  std::optional<size_t> on_device = {};  // bytes of parameters that stay there; none: all
  OptimizerState state = OptimizerState::device;
};

TrainingConfig training(const Case& c) {
  const LoraConfig lora{.rank = c.lora, .alpha = 2 * static_cast<double>(c.lora)};
  return {.model = c.model.adapted(lora),
          .dtype = c.dtype,
          .batch = c.B,
          .seq = c.T,
          .chunks = {.loss_rows = c.loss_chunk}};
}

Policy policy_of(const Case& c) {
  return {.optimizer_state = c.state, .parameters_on_device = c.on_device};
}

StepKernels kernels_of_step(const TrainingConfig& config, const StepPlans& plans,
                            const Machine& machine) {
  const StepDescription step = describe_step(config);
  return benchmarks::traced_kernels(rehearse_step(step, plans, machine, {.trace = true}).trace,
                                    rehearse_tape(step, plans.step, machine).program);
}

// The best seconds of each.
struct CpuTimes {
  double step = 1e9, products = 1e9, onednn = 1e9;
};

void set_cpu_counters(benchmark::State& state, const CpuTimes& best, double other_bytes,
                      double copy_rate) {
  const double others = other_bytes / copy_rate;
  state.counters["step_ms"] = best.step * 1e3;
  state.counters["products_ms"] = best.products * 1e3;
  state.counters["others_ms"] = others * 1e3;
  state.counters["copied_gb_per_s"] = copy_rate / 1e9;
  state.counters["over_products"] = best.step / best.products;
  state.counters["over_both"] = best.step / (best.products + others);
  if (best.onednn == CpuTimes{}.onednn) return;
  state.counters["onednn_ms"] = best.onednn * 1e3;
  state.counters["over_onednn"] = best.step / best.onednn;
}

// Times steps and products in turn, so that all see the same machine.
CpuTimes time_in_turn(benchmark::State& state, const std::function<void()>& step,
                      StepProducts& products, OnednnProducts& onednn) {
  const bool has_onednn = onednn.absence().empty();
  if (!has_onednn) state.SetLabel("onednn_ms is absent: " + onednn.absence());
  step();
  products.run();
  if (has_onednn) onednn.run();
  CpuTimes best;
  for (auto _ : state) {
    const double seconds = seconds_of(step);
    state.SetIterationTime(seconds);
    best.step = std::min(best.step, seconds);
    best.products = std::min(best.products, seconds_of([&] { products.run(); }));
    if (has_onednn) best.onednn = std::min(best.onednn, seconds_of([&] { onednn.run(); }));
  }
  return best;
}

void step_on_cpu(benchmark::State& state, const Case& c) {
  const TrainingConfig config = training(c);
  const TokenBatch batch = benchmarks::random_batch(config);
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const Device cpu{DeviceType::cpu};
  const double copy_rate = measure_machine(cpu, c.dtype, threads).bytes_per_second;
  const Machine machine{.architecture = this_processor(threads)};
  const PlannedRun planned = RunPlanner(config, {}, {}, machine).plan();
  const StepKernels kernels = kernels_of_step(config, planned.plans, machine);
  const auto of_products = open_stream_for(
      [&](Stream& stream) { StepProducts(kernels.products, stream).run(); }, cpu, threads);
  StepProducts products(kernels.products, *of_products);
  OnednnProducts onednn(products.kernels(), threads);

  const auto stream = open_stream(cpu, planned.foretold.memory.peak, threads);
  Trainer trainer(config, planned.plans, *stream);
  trainer.initialise();
  int64_t done = 0;
  const auto step = [&] {
    trainer.step(done++, batch);
    trainer.result();
  };
  const CpuTimes best = time_in_turn(state, step, products, onednn);
  set_cpu_counters(state, best, kernels.other_bytes, copy_rate);
  state.counters["tokens_per_s"] = static_cast<double>(c.B * c.T) / best.step;
  state.counters["peak_bytes"] = static_cast<double>(stream->memory().peak);
}

// A trainer on a stream of exactly its peak.
struct CpuRun {
  explicit CpuRun(const Case& c)
      : config(training(c)),
        planned(
            RunPlanner(config, request(c), {}, {.architecture = this_processor(threads)}).plan()),
        stream(open_stream({DeviceType::cpu}, planned.foretold.memory.peak, threads)),
        trainer(config, planned.plans, *stream) {
    trainer.initialise();
    step();
  }
  static RunRequest request(const Case& c) {
    return {.steps = {.policy = policy_of(c), .choose = Choices{}}};
  }
  // Seconds of all processors.
  double step() {
    const std::clock_t begin = std::clock();
    trainer.step(done++, batch);
    trainer.result();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }

  int threads = static_cast<int>(std::thread::hardware_concurrency());
  TrainingConfig config;
  TokenBatch batch = benchmarks::random_batch(config);
  PlannedRun planned;
  std::unique_ptr<Stream> stream;
  Trainer trainer;
  int64_t done = 0;
};

// A step of each, in turns; counters are named after them.
void in_turns(benchmark::State& state, const std::string& usual, const Case& of_usual,
              const std::string& other, const Case& of_other) {
  CpuRun first(of_usual), second(of_other);
  std::vector<double> of_first, of_second;
  for (auto _ : state) {
    of_first.push_back(first.step());
    of_second.push_back(second.step());
    state.SetIterationTime(of_second.back());
  }
  state.counters[usual + "_ms"] = median(of_first) * 1e3;
  state.counters[other + "_ms"] = median(of_second) * 1e3;
  state.counters["over_" + usual] = median(of_second) / median(of_first);
  state.counters[usual + "_bytes"] = static_cast<double>(first.stream->memory().peak);
  state.counters[other + "_bytes"] = static_cast<double>(second.stream->memory().peak);
}

void adapters_on_cpu(benchmark::State& state, const Case& c) {
  Case all = c;
  all.lora = 0;
  in_turns(state, "full", all, "adapters", c);
}

void homes_on_cpu(benchmark::State& state, const Case& c) {
  Case all = c;
  all.on_device = {};
  in_turns(state, "resident", all, "homes", c);
}

// Flops of a step's products: those with weights, forward and two in backward, and those of
// attention, counted without the mask.
double step_flops(const Case& c, const std::vector<benchmarks::StepProduct>& products) {
  const ModelShape shape = c.model.shape();
  double flops = 0;
  for (const auto& p : products) flops += 2.0 * static_cast<double>(p.rows * p.in * p.out);
  const auto scores = static_cast<double>(c.B * c.T * c.T * shape.layers);
  return flops + 12 * scores * static_cast<double>(shape.heads.query * shape.head);
}

void set_counters(benchmark::State& state, const Case& c, double flops, double seconds) {
  constexpr double peak_of_hopper = 989e12;
  const double rate = flops / seconds;
  state.counters["step_ms"] = seconds * 1e3;
  state.counters["tokens_per_s"] = static_cast<double>(c.B * c.T) / seconds;
  if (flops == 0) return;  // they are not counted with adapters
  state.counters["flop_per_s"] = rate;
  if (c.dtype == DType::bf16) state.counters["mfu"] = rate / peak_of_hopper;
}

Machine cuda_machine() {
  return {.architecture = open_stream({DeviceType::cuda}, Arena::granule)->architecture()};
}

void time_steps(benchmark::State& state, const Case& c, double flops, Trainer& trainer,
                Stream& stream) {
  constexpr int in_a_row = 4, warm_up = 3;
  const TokenBatch batch = benchmarks::random_batch(training(c));
  int64_t done = 0;
  const auto step = [&] { trainer.step(done++, batch); };
  for (int i = 0; i < warm_up; ++i) step();
  stream.synchronize();
  std::vector<double> many, alone, host;
  for (auto _ : state) {
    alone.push_back(seconds_of([&] {
      host.push_back(seconds_of(step));
      stream.synchronize();
    }));
    many.push_back(seconds_of([&] {
                     for (int i = 0; i < in_a_row; ++i) step();
                     stream.synchronize();
                   }) /
                   in_a_row);
    state.SetIterationTime(many.back());
  }
  check(trainer.result().finite, "step: the loss or a gradient is not finite");
  set_counters(state, c, flops, median(many));
  state.counters["alone_ms"] = median(alone) * 1e3;
  state.counters["host_ms"] = median(host) * 1e3;
}

void step_on_cuda(benchmark::State& state, const Case& c) {
  const TrainingConfig config = training(c);
  StepPlans plans = make_plans(config, policy_of(c), cuda_machine());
  plans.graph = c.graph;
  plans.layout = lay_out_step(describe_step(config), plans, cuda_machine());
  plans.host_bytes = foretell_step(describe_step(config), plans, cuda_machine()).host.peak;
  const Report foretold = rehearse(cuda_machine(), [&](MetaStream& meta) {
    Trainer trainer(config, plans, meta);
    trainer.initialise();
    trainer.rehearse_step();
  });
  const double flops =
      c.lora ? 0 : step_flops(c, kernels_of_step(config, plans, cuda_machine()).products);
  const auto stream = open_stream({DeviceType::cuda}, foretold.memory.peak);
  Trainer trainer(config, plans, *stream);
  trainer.initialise();
  time_steps(state, c, flops, trainer, *stream);
  const size_t peak = stream->memory().peak;
  check(peak == foretold.memory.peak, "step: the peak is ", peak, " bytes, but was foretold as ",
        foretold.memory.peak);
  state.counters["peak_bytes"] = static_cast<double>(peak);
  state.counters["foretold_bytes"] = static_cast<double>(foretold.memory.peak);
}

// The optimizer's step alone, with gradients of the parameters' type.
void optimizer_on_cuda(benchmark::State& state, const Case& c) {
  constexpr double bytes_each = 30;  // the norm reads 2, AdamW reads 14 and writes 14
  const auto count = static_cast<double>(c.model.parameter_count());
  const auto stream =
      open_stream({DeviceType::cuda}, static_cast<size_t>(count * 20) + (size_t{64} << 20));
  const auto model = c.model.make(c.dtype, *stream);
  model->initialise(/*seed=*/1);
  AdamWOptimizer optimizer(model->parameters(), {}, *stream);
  optimizer.initialise();
  std::vector<Tensor> gradients;
  for (const Parameter* p : model->parameters()) {
    gradients.emplace_back(p->data.spec(), *stream);
    launch(Fill{.out = gradients.back(), .value = 0.01f}, *stream);
  }
  const auto step = [&] {
    size_t i = 0;
    for (Parameter* p : model->parameters()) p->grad = gradients[i++];
    optimizer.step(/*learning_rate=*/1e-4);
  };
  std::vector<double> all, host;
  for (auto _ : state) {
    all.push_back(benchmarks::seconds_each(*stream, /*times=*/4, step));
    host.push_back(seconds_of(step));
    state.SetIterationTime(all.back());
  }
  state.counters["optimizer_ms"] = median(all) * 1e3;
  state.counters["host_ms"] = median(host) * 1e3;
  state.counters["gb_per_s"] = bytes_each * count / median(all) / 1e9;
}

using Work = void (*)(benchmark::State&, const Case&);

void register_case(const std::string& what, const std::string& model, Case c, Work work) {
  c.model = model_preset(model)->config;
  std::string title = sentence(what, "/", model, "/", name(c.dtype), "/B:", c.B, "/T:", c.T);
  if (c.lora > 0) title += sentence("/lora:", c.lora);
  if (c.on_device && work == step_on_cuda) title += "/parameters:host";
  if (work == step_on_cuda) {
    title += sentence("/chunk:", c.loss_chunk, c.graph ? "/graph" : "/kernel_by_kernel");
  }
  benchmarks::register_timed(title, /*iterations=*/7,
                             [c, work](benchmark::State& state) { work(state, c); });
}

void register_cpu_cases() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [B, T] : {std::pair{4, 64}, {4, 256}, {1, 1024}}) {
      register_case("step", "gpt2-124m", {.dtype = dtype, .B = B, .T = T}, step_on_cpu);
    }
  }
  register_case("step", "gpt2-tiny", {.B = 16, .T = 128}, step_on_cpu);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    register_case("step", "smollm2-135m", {.dtype = dtype, .T = 512}, step_on_cpu);
    register_case("adapters", "smollm2-135m", {.dtype = dtype, .T = 512, .lora = 16},
                  adapters_on_cpu);
    register_case("homes", "smollm2-135m",
                  {.dtype = dtype, .T = 512, .on_device = 0, .state = OptimizerState::streamed},
                  homes_on_cpu);
  }
}

void register_cuda_cases() {
  const auto add = [](const std::string& model, const Case& c) {
    register_case("step", model, c, step_on_cuda);
  };
  constexpr DType bf16 = DType::bf16;
  add("gpt2-124m", {.dtype = bf16, .B = 32, .loss_chunk = 0});
  add("gpt2-124m", {.dtype = bf16, .B = 32, .loss_chunk = 0, .graph = false});
  add("gpt2-124m", {.dtype = bf16, .B = 32, .loss_chunk = 4096});
  add("llama-3.2-1b", {.dtype = bf16, .T = 2048, .loss_chunk = 0});
  add("llama-3.2-1b", {.dtype = bf16, .T = 2048, .loss_chunk = 0, .graph = false});
  add("llama-3.2-1b", {.dtype = bf16, .T = 2048, .loss_chunk = 512, .lora = 16});
  Case away{.dtype = bf16, .T = 2048, .loss_chunk = 512, .on_device = 0};
  away.state = OptimizerState::streamed;
  add("llama-3.2-1b", away);
  for (const char* const model : {"gpt2-124m", "llama-3.2-1b"}) {
    register_case("optimizer", model, {.dtype = bf16}, optimizer_on_cuda);
  }
  add("gpt2-355m", {.dtype = bf16, .B = 32, .loss_chunk = 4096});
  add("gpt2-1558m", {.dtype = bf16, .B = 8, .loss_chunk = 4096});
  add("gpt2-tiny", {.B = 16, .T = 128, .loss_chunk = 0});
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const std::string device = benchmarks::take_argument(argc, argv, "device", "cpu");
  return benchmarks::report_errors([&] {
    benchmark::Initialize(&argc, argv);
    const bool cuda = parse_device(device).type == DeviceType::cuda;
    if (cuda) open_stream({DeviceType::cuda}, Arena::granule);  // throws if there is no GPU
    cuda ? register_cuda_cases() : register_cpu_cases();
    benchmark::RunSpecifiedBenchmarks();
  });
}
