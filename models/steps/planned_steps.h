#pragma once

// Plans the training steps of any model before they run: their plan, by hand or chosen for a
// budget, the layout of their memory, and the memory and time that they take.

#include "spool/models/steps/step.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/rehearsal.h"
#include "spool/planner/search/search.h"

namespace spool {

struct PlannedSteps {
  StepPlans plans = {};
  int64_t loss_rows = 0;  // of a chunk of the loss; 0: all
  // Of a step, with the model and the optimizer's state: also what is live at the peak, and the
  // kernels that the machine could not run.
  Report foretold = {};
  size_t budget = 0;  // bytes of the device's arena
  // If the plan was searched for: what was found.
  std::optional<SearchResult> search = {};
};

// Throws Error (memory) if the steps do not fit into the request's budget: it says what the
// smallest peak is, and where.
PlannedSteps plan_steps(const StepDescription&, const StepRequest&, const Machine&);

}  // namespace spool
