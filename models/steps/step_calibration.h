#pragma once

// Measures the kernels of a training step of any model: the real step runs on a placeholder batch
// (models/calibration/).

#include <vector>

#include "spool/models/calibration/calibration.h"
#include "spool/models/steps/step.h"
#include "spool/models/steps/step_request.h"

namespace spool {

// A step under these plans, at learning rate 0, of at most two micro-batches: the last launches
// what those in the middle do.  On ranks each measures it by itself, and then the sums of ranks.
MeasurableWork measurable_step(const StepDescription&, const StepPlans&);

// Plans that launch the same kernels in less and less memory, except the last one's optimizer: the
// policy's plan, that with everything recomputed, and that with the state streamed, too.
std::vector<StepPlans> calibration_plans(const StepDescription&, const Policy&);

// The request for a step on a device: for the request's plan, if it has one, then for those of its
// policy, with the table in the user's cache.
CalibrationRequest calibration_of(const StepDescription&, const StepRequest&, Device, int threads);

}  // namespace spool
