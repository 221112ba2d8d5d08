#include "spool/models/training/calibration_samples.h"

#include <algorithm>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/planned_run.h"

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

}  // namespace

std::vector<TrainingConfig> sample_configs(const TrainingConfig& config) {
  TrainingConfig sample = config;
  const int64_t layers = std::min(config.model.shape().layers, sample_layers);
  sample.model = config.model.with("layers", layers);
  sample.chunks.nodes.clear();
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
    for (StepPlans& plans : calibration_plans(step, policy)) {
      plans.spill_directory = steps.spill_directory;
      request.samples.push_back(measurable_step(step, plans));
    }
  }
}

KernelCount count_kernels(const PlannedRun& run, const Machine& machine) {
  const MeasurableWork step = measurable_step(describe_step(run.config), run.plans);
  const auto kernels = distinct(rehearse_kernels(step, machine).launches);
  const auto is_measured = [&](const KernelTime& k) {
    return machine.kernels && machine.kernels->find(k.name.c_str(), k.cost);
  };
  const auto measured = static_cast<size_t>(std::ranges::count_if(kernels, is_measured));
  return {.all = kernels.size(), .unmeasured = kernels.size() - measured};
}

}  // namespace spool
