// Public: one of the headers of docs/public-headers.md.
#pragma once

// Plans the training steps of any model before they run: chooses or completes a plan for a budget,
// lays out their memory, and foretells their memory and time.

#include "spool/models/steps/step.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/rehearsal.h"
#include "spool/planner/search/search.h"

namespace spool {

struct PlannedSteps {
  StepPlans plans = {};
  StepChunks chunks = {};
  // The costs of a step, with model and optimizer state, and of the rest of the run; includes what
  // is live at the peak, and the kernels that the machine cannot run.
  Report foretold = {};
  size_t budget = 0;        // bytes of the device's arena: as requested, or the peak
  bool has_budget = false;  // whether it was requested
  // Maximum bytes of the plan: the budget, or else the free bytes if a search needed them, or else
  // the peak.
  size_t limit = 0;
  // Bytes of the same memory that the program takes outside the arena; 0: none.
  size_t program_bytes = 0;
  // Whether a search chose the plan.
  bool is_chosen = false;
  // A search's result: the plan, or one to compare it with; none: no search was run.
  std::optional<SearchResult> search = {};
  // Threads of a cpu for whose workspaces a search chose chunks: with 8, 4, 2 or 1, runs of as many
  // or fewer have the same chunks; 0: another device, or they were not chosen.
  int chunks_hold_for_threads = 0;
  // By what part of its time the step would be faster if chunks were chosen by the run's own clock
  // and for its own threads; 0: by at most 1 %.
  double slowed_by_chunks = 0;
  // Why the steps cannot begin, if they do not fit: an Error (memory) that says where the peak is
  // and what would fit.
  std::optional<Error> refusal = {};
};

// Throws Error (memory) if the steps do not fit into the request's budget: it gives the smallest
// peak and its place.
PlannedSteps plan_steps(const StepDescription&, const StepRequest&, const Machine&);

}  // namespace spool
