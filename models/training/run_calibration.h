// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Measures the kernels of a run's step (models/steps/step_calibration.h).

#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/run_options.h"

namespace spool {

// For the device, the step, the chunks and the budget of these options and, if one was given, for
// this plan of the step, with the table in the user's cache.  Nothing is measured for a run that
// cannot fit.
CalibrationRequest calibration_of(const RunOptions&, const std::optional<Plan>& given = {});

}  // namespace spool
