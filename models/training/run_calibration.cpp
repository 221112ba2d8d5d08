#include "spool/models/training/run_calibration.h"

#include "spool/models/training/budget.h"
#include "spool/planner/calibration/device_identity.h"

namespace spool {

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
  return request;
}

}  // namespace spool
