// Public: one of the headers of docs/public-headers.md.
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
  StepChunks chunks = {};
  // Of a step, with the model and the optimizer's state, and of what else the run does: also what
  // is live at the peak, and the kernels that the machine could not run.
  Report foretold = {};
  size_t budget = 0;        // bytes of the device's arena: those that were set, or the peak
  bool has_budget = false;  // they were set
  // The most bytes that the plan might take: the budget, or else what is free if a search had to
  // know, or else the peak.
  size_t limit = 0;
  // Bytes that the program is expected to take of the same memory besides; 0: of another.
  size_t besides = 0;
  // Whether the plan is the one that a search found.
  bool is_chosen = false;
  // What a search found: the plan, or what it is compared with; none: nothing was searched for.
  std::optional<SearchResult> search = {};
  // Why the steps cannot begin, if they do not fit: an Error (memory) that says where the peak is
  // and what would fit.
  std::optional<Error> refusal = {};
};

// Throws Error (memory) if the steps do not fit into the request's budget: it says what the
// smallest peak is, and where.
PlannedSteps plan_steps(const StepDescription&, const StepRequest&, const Machine&);

}  // namespace spool
