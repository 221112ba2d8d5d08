#pragma once

// The search for a plan (planner/search/search.h) of a training step of any model.

#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/search/search.h"

namespace spool {

// `other_peak`: bytes of the device that the run takes besides its steps; none: it has steps alone.
SearchedStep searched_step(const StepDescription&, const Machine&,
                           std::function<size_t(int64_t loss_rows, const Plan&)> other_peak = {});

}  // namespace spool
