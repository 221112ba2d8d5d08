#pragma once

// What is measured for the kernels of a training step: the step of a model of two layers, which
// launches the kernels of them all, as a model of text has equal layers.

#include <vector>

#include "spool/models/calibration/calibration.h"
#include "spool/models/training/training_config.h"

namespace spool {

struct PlannedRun;

// The configuration with at most two layers, then, for runs that are too long or too large, with
// fewer rows, and with one row of fewer tokens.
std::vector<TrainingConfig> sample_configs(const TrainingConfig&);

// Makes the request for the whole step one for its samples, unless the model has no more layers
// than they have.  On cuda, attention's backward runs there in the fewest and in the most parts.
void add_samples(CalibrationRequest&, const TrainingConfig&, const StepRequest&);

// Number of kernels of a run's step, and of those that the machine's table lacks: their time is
// foretold by the rates, scaled as what was measured.
struct KernelCount {
  size_t all = 0, unmeasured = 0;
};
KernelCount count_kernels(const PlannedRun&, const Machine&);

}  // namespace spool
