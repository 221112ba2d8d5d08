#pragma once

// The sums of a step on ranks, for measuring: each rank measures its kernels in a step that
// exchanges nothing (step_calibration.h), which then launches these.

#include <vector>

#include "spool/autograd/parameter.h"
#include "spool/models/steps/step.h"

namespace spool {

// Launches the sum of a whole bucket, of memory that lives meanwhile: as the first of a step, and
// as one that adds to it, where steps of the ranks have such.  Nothing without ranks.
void launch_sums(const std::vector<Parameter*>& trained, const StepConfig& of_ranks, Stream&);

}  // namespace spool
