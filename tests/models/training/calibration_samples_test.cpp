// runs: numbers
// A model of two layers launches the kernels of the whole step, except those of the update.

#include "spool/models/training/calibration_samples.h"

#include <gtest/gtest.h>

#include "spool/models/families/gpt2.h"
#include "spool/models/families/llama.h"
#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

const Machine two_cores{.architecture = this_processor(2)};

TrainingConfig six_layers(const ModelConfig& model = *gpt2_preset("gpt2-tiny")) {
  TrainingConfig config = small();
  config.model = model.with("layers", 6).with("context", 64);
  config.batch = 4;
  config.seq = 64;
  return config;
}

std::vector<KernelTime> kernels_of(const TrainingConfig& config, const Policy& policy) {
  const StepDescription step = describe_step(config);
  const MeasurableWork work = measurable_step(step, {.step = plan_step(step, policy, two_cores)});
  return distinct(rehearse_kernels(work, two_cores).launches);
}

// Names of the kernels that no sample launches with this cost.
std::set<std::string> missing(const TrainingConfig& config, const Policy& policy = {}) {
  const std::vector<KernelTime> sample = kernels_of(sample_configs(config).front(), policy);
  std::set<std::string> names;
  for (const KernelTime& k : kernels_of(config, policy)) {
    if (!std::ranges::binary_search(sample, k, before)) names.insert(k.name);
  }
  return names;
}

// What goes through all parameters at once, and so differs with their number.
const std::set<std::string> of_update{"adamw", "squared_norm", "sum_granules"};

void expect_only_the_update_is_missing(const TrainingConfig& config, const Policy& policy = {}) {
  for (const std::string& name : missing(config, policy))
    EXPECT_TRUE(of_update.contains(name)) << name;
}

TEST(CalibrationSamples, LaunchTheKernelsOfAllLayers) {
  const LlamaConfig with_norms{.type = LlamaType::qwen3, .qk_norm = true, .tied = false};
  for (const ModelConfig& model : {ModelConfig(*gpt2_preset("gpt2-tiny")),
                                   ModelConfig(LlamaConfig{}), ModelConfig(with_norms)}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TrainingConfig config = six_layers(model);
      config.dtype = dtype;
      expect_only_the_update_is_missing(config);
      config.accumulate = 3;
      config.dropout = dtype == DType::bf16 ? 0.1f : 0;
      expect_only_the_update_is_missing(config);
    }
  }
}

TEST(CalibrationSamples, LaunchTheKernelsOfPoliciesByHand) {
  const TrainingConfig config = six_layers();
  for (const char* list : {"norms,gelu", "block"}) {
    Policy policy;
    set_recompute(policy, list);
    expect_only_the_update_is_missing(config, policy);
  }
  expect_only_the_update_is_missing(config, {.loss_chunk = 64, .mlp_chunk = 64});
  expect_only_the_update_is_missing(config, {.optimizer_state = OptimizerState::cpu});
}

TEST(CalibrationSamples, TakeLessMemoryThanTheStep) {
  TrainingConfig config = six_layers();
  config.model = config.model.with("layers", 24);
  const auto peak = [](const TrainingConfig& c) {
    return rehearse_kernels(measurable_step(describe_step(c), {}), two_cores).peak;
  };
  EXPECT_LT(peak(sample_configs(config).front()), peak(config) / 4);
}

TEST(CalibrationSamples, AreSmallerIfTheFirstDoesNotFit) {
  TrainingConfig config = six_layers();
  config.model = config.model.with("context", 256);
  config.seq = 256;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const TrainingConfig& sample : sample_configs(config)) {
    EXPECT_EQ(sample.model.shape().layers, 2);
    EXPECT_EQ(sample.model.shape().context, 256);
    shapes.emplace_back(sample.batch, sample.seq);
  }
  const std::vector<std::pair<int64_t, int64_t>> halves{
      {4, 256}, {2, 256}, {1, 256}, {1, 128}, {1, 64}};
  EXPECT_EQ(shapes, halves);
  config.model = config.model.with("layers", 1);
  EXPECT_EQ(sample_configs(config).front().model.shape().layers, 1);
}

CalibrationRequest request_for(const TrainingConfig& config, const TemporaryDirectory& folder) {
  RunOptions options;
  options.device = {DeviceType::cpu};
  options.threads = 2;
  options.training = config;
  CalibrationRequest request = calibration_of(options);
  request.folder = folder.path();
  return request;
}

// The step is foretold as by a table of all its kernels, if every kernel takes the same multiple of
// its roofline.
TEST(CalibrationSamples, ForetellTheWholeStep) {
  const TrainingConfig config = six_layers();
  constexpr double slower = 3;
  const auto as_measured = [&](const TrainingConfig& measured) {
    std::vector<KernelTime> kernels = kernels_of(measured, {});
    for (KernelTime& k : kernels) k.seconds = slower * two_cores.seconds(k.cost);
    Machine machine = two_cores;
    machine.kernels = std::make_shared<KernelTimes>(std::move(kernels));
    return machine;
  };
  const auto foretold = [&](const Machine& machine) {
    return foretell_step(describe_step(config), make_plans(config), machine).seconds;
  };
  const double whole = foretold(as_measured(config));
  for (const TrainingConfig& sample : sample_configs(config)) {
    EXPECT_NEAR(foretold(as_measured(sample)), whole, 1e-9 * whole);
  }
  EXPECT_GT(whole, 2 * foretold(two_cores));
}

TEST(CalibrationSamples, AreMeasuredInsteadOfTheStep) {
  const TrainingConfig config = six_layers();
  const TemporaryDirectory folder;
  const CalibrationRequest request = request_for(config, folder);
  const Calibration found = calibrate(request);
  EXPECT_EQ(found.measured, kernels_of(sample_configs(config).front(), {}).size());
  EXPECT_EQ(found.kernels.size() + found.unmeasured.size(), kernels_of(config, {}).size());
  EXPECT_FALSE(found.unmeasured.empty());
  for (const KernelTime& k : found.unmeasured) EXPECT_TRUE(of_update.contains(k.name)) << k.name;
  const PlannedRun run = RunPlanner(config, {}, SampleLength{}, found.machine).plan();
  const KernelCount count = count_kernels(run, found.machine);
  EXPECT_EQ(count.all, kernels_of(config, {}).size());
  EXPECT_EQ(count.unmeasured, found.unmeasured.size());
  EXPECT_EQ(calibrate(request).measured, 0u);
}

TEST(CalibrationSamples, OfTwoLayersAreTheStep) {
  TrainingConfig config = six_layers();
  config.model = config.model.with("layers", 2);
  const TemporaryDirectory folder;
  const Calibration found = calibrate(request_for(config, folder));
  EXPECT_TRUE(found.unmeasured.empty());
  EXPECT_EQ(found.measured, found.kernels.size());
}

// Two rows of 4 heads of 64 elements, which cuDNN computes.
TrainingConfig on_h200() {
  TrainingConfig config = six_layers(gpt2_preset("gpt2-tiny")->with("channels", 256));
  config.dtype = DType::bf16;
  config.batch = 2;
  return config;
}

// What attention's backward costs.
using Costs = std::set<std::pair<double, double>>;

Costs backward_costs(const MeasurableWork& work) {
  static const Machine h200 = *named_machine("h200");
  Costs costs;
  for (const KernelTime& k : rehearse_kernels(work, h200).launches) {
    if (k.name == "attention_backward") costs.emplace(k.cost.flops, k.cost.bytes);
  }
  return costs;
}

std::vector<NodesInChunks> in_parts(const TrainingConfig& config, const std::vector<int>& of_each) {
  std::vector<NodesInChunks> all;
  read_program(config, [&](const Program& program) { all = parts_of(program, {}); });
  for (size_t i = 0; i < all.size(); ++i) all[i].chunks = of_each[i % of_each.size()];
  return all;
}

// Of the run's step, whose layers have these parts in turn.
Costs costs_in_parts(const TrainingConfig& config, const std::vector<int>& of_each) {
  const Plan plan = with_parts(Plan{}, in_parts(config, of_each));
  return backward_costs(measurable_step(describe_step(config), {.step = plan}));
}

std::vector<Costs> costs_of_samples(const TrainingConfig& config, DeviceType device) {
  CalibrationRequest request{.device = {device}};
  add_samples(request, config, {});
  std::vector<Costs> all;
  for (const MeasurableWork& sample : request.samples) all.push_back(backward_costs(sample));
  return all;
}

constexpr int own_kernel = 2 * 4 + 1;  // more parts than there are key heads

TEST(CalibrationSamples, RunCudnnAndSpoolsKernel) {
  const TrainingConfig config = on_h200();
  const Costs both = costs_in_parts(config, {1, own_kernel}), one = costs_in_parts(config, {1});
  EXPECT_EQ(both.size(), one.size() + costs_in_parts(config, {own_kernel}).size());
  EXPECT_EQ(costs_of_samples(config, DeviceType::cuda).front(), both);
  EXPECT_EQ(costs_of_samples(config, DeviceType::cpu).front(), one);
}

TEST(CalibrationSamples, RunTheFewestAndTheMostPartsOfTheRun) {
  TrainingConfig config = on_h200(), one_row = config;
  one_row.batch = 1;
  config.chunks.nodes = in_parts(config, {4, 2, 8, 4});
  const std::vector<Costs> samples = costs_of_samples(config, DeviceType::cuda);
  EXPECT_EQ(costs_in_parts(config, {2, 8}).size(), 2U);
  EXPECT_EQ(samples.front(), costs_in_parts(config, {2, 8}));
  EXPECT_EQ(samples.back(), costs_in_parts(one_row, {1, 4})) << "parts of as many heads";
  config.chunks.nodes = in_parts(config, {own_kernel});
  for (const Costs& sample : costs_of_samples(config, DeviceType::cuda)) {
    EXPECT_EQ(sample.size(), costs_in_parts(config, {own_kernel}).size());
  }
  EXPECT_EQ(costs_of_samples(config, DeviceType::cuda).back(), costs_in_parts(one_row, {5}));
}

}  // namespace
}  // namespace spool::testing
