#include "spool/models/training/run_calibration.h"

#include "spool/models/training/budget.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/calibration/device_identity.h"

namespace spool {

namespace {

// By measured kernels a search finds other plans, of which the smallest may take a little less.
bool may_fit(const PlannedRun& run) {
  if (!run.refusal) return true;
  const size_t peak = run.foretold.memory.peak, limit = limit_of(run);
  return limit < peak && peak - limit <= peak / 10;
}

}  // namespace

CalibrationRequest calibration_of(const RunOptions& options, const std::optional<Plan>& given) {
  CalibrationRequest request{.device = options.device,
                             .threads = options.threads,
                             .memory = options.memory,
                             .free = free_memory(options.device),
                             .step = describe_step(options.training),
                             .disk = options.spill_directory,
                             .folder = cache_folder()};
  request.plans = calibration_plans(request.step, with_chunks_of(options.training, options.policy));
  if (given) request.plans.insert(request.plans.begin(), StepPlans{.step = *given});
  for (StepPlans& plans : request.plans) plans.spill_directory = options.spill_directory;
  request.is_of_use = [options, given](const Machine& machine) {
    RunRequest of_run = request_of(options, machine, given);
    of_run.limit = memory_limit(options.device, options.memory, machine);
    return may_fit(plan_run(options.training, of_run, machine));
  };
  return request;
}

}  // namespace spool
