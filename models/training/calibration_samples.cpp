#include "spool/models/training/calibration_samples.h"

#include <algorithm>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/planned_run.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t sample_layers = 2;  // the first one's input is not a layer's
constexpr int64_t min_tokens = 64;    // of a shortened row

// The policy of the request without what names nodes of the whole model's tape.
Policy policy_of_samples(const StepRequest& request) {
  Policy policy = request.given_policy();
  policy.in_chunks.clear();
  return policy;
}

// The parts of attention's backward in a sample: by turns the fewest and the most that occur.  They
// are a run's own, cut as it has them, or else one, by cuDNN, and those that leave the backward to
// Spool's kernels.  The time of others is scaled from the nearer.
std::vector<NodesInChunks> parts_of_sample(const TrainingConfig& sample,
                                           const TrainingConfig& run) {
  std::vector<NodesInChunks> parts, own = parts_in(run.chunks.nodes);
  std::ranges::sort(own, {}, &NodesInChunks::chunks);
  read_program(sample, [&](const Program& program) {
    parts = parts_of(program, {});
    for (size_t i = 1; i < parts.size(); i += 2) {
      Specs in;
      const Node& node = program.nodes[parts[i].first];
      for (const ValueId v : node.inputs) in.push_back(program.values[v].spec);
      parts[i].chunks = static_cast<int>(node.op->max_parts(in));
    }
  });
  for (size_t i = 0; i < parts.size() && !own.empty(); ++i) {
    const int64_t of_run = (i % 2 == 0 ? own.front() : own.back()).chunks;
    parts[i].chunks = static_cast<int>(ceil_div(of_run * sample.batch, run.batch));
  }
  return parts;
}

}  // namespace

std::vector<TrainingConfig> sample_configs(const TrainingConfig& config) {
  TrainingConfig sample = config;
  const int64_t layers = std::min(config.model.shape().layers, sample_layers);
  sample.model = config.model.with("layers", layers);
  sample.chunks.nodes.clear();
  sample.shards.reset();
  std::vector<TrainingConfig> samples{sample};
  while (sample.batch > 1 || sample.seq / 2 >= min_tokens) {
    (sample.batch > 1 ? sample.batch : sample.seq) /= 2;
    samples.push_back(sample);
  }
  return samples;
}

void add_samples(CalibrationRequest& request, const TrainingConfig& config,
                 const StepRequest& steps) {
  const bool has_more = config.model.shape().layers > sample_layers;
  if (has_more) request.samples.clear();
  const Policy policy = policy_of_samples(steps);
  for (const TrainingConfig& sample : sample_configs(config)) {
    if (!has_more && sample.batch == config.batch && sample.seq == config.seq) continue;
    const StepDescription step = describe_step(sample);
    std::vector<NodesInChunks> parts;
    if (request.device.type == DeviceType::cuda) parts = parts_of_sample(sample, config);
    for (StepPlans& plans : calibration_plans(step, policy)) {
      plans.step = with_parts(std::move(plans.step), parts);
      plans.spill_directory = steps.spill_directory;
      request.samples.push_back(measurable_step(step, plans));
    }
  }
}

KernelCount count_kernels(const PlannedRun& run, const Machine& machine) {
  if (run.config.shards) return {};  // its ops are parts of those that are measured
  const MeasurableWork step = measurable_step(describe_step(run.config), run.plans);
  const auto kernels = distinct(rehearse_kernels(step, machine).launches);
  const auto is_measured = [&](const KernelTime& k) {
    return machine.kernels && machine.kernels->find(k.name.c_str(), k.cost);
  };
  const auto measured = static_cast<size_t>(std::ranges::count_if(kernels, is_measured));
  return {.all = kernels.size(), .unmeasured = kernels.size() - measured};
}

}  // namespace spool
