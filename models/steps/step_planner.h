#pragma once

// Plans the steps of a run of any model, and what else it does: as they are set by hand, or by a
// search (planner/search/search.h) within its budget.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/models/steps/planned_steps.h"
#include "spool/models/steps/run_request.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/search/search.h"

namespace spool {

// The peak of what else a run does, in bytes of the device; as SearchedStep::other_peak, which see.
using OtherPeak = std::function<size_t(int64_t loss_rows, const Plan&)>;
SearchedStep searched_step(const StepDescription&, const Machine&, OtherPeak = {});

// A plan by a simple rule that treats all layers alike, as people set it by hand, and what it
// takes.
struct PolicyPoint {
  std::string name = {};  // "recompute norms,gelu"
  size_t peak = 0;        // of the run, bytes of the device
  double seconds = 0;     // of a step
};

// What a run takes under many budgets, and under policies that people set by hand.
struct Frontier {
  std::vector<PlannedSteps> points = {};   // by rising budget
  std::vector<PolicyPoint> policies = {};  // if asked for; the first keeps all
};

class StepPlanner {
 public:
  // The request says what may be chosen; what may not is that of its plan or, without one, that of
  // its policy, which has the chunks of a plan that is given with it.
  StepPlanner(RunSteps, RunRequest, const Machine&);
  ~StepPlanner();

  // As it is set by hand, unless something may be chosen and there is a budget, or what is set by
  // hand does not fit into what is free: then by a search.  With a refusal if it does not fit.
  PlannedSteps plan();

  // The fastest plan of at most so many bytes of the device, or the one of the smallest peak if
  // none fits.  Its budget is its peak, and no refusal is in it.  It has no lower bound, 0, if
  // values are offloaded, or the optimizer's state is on the host, by hand.
  PlannedSteps plan_within(size_t bytes);
  // Whether a plan would fit if what is recomputed and offloaded were not set by hand.
  bool can_choose_within(size_t bytes);
  // The smallest limit within which there is a plan.
  size_t smallest_budget();
  // The peak of the plan that keeps everything.
  size_t keep_all_peak();

  // Plans for budgets from the smallest to that of keeping everything, evenly spread; no policies.
  Frontier frontier();
  // Policies that people know, with the chunks and the place of the optimizer's state that are set
  // by hand; the first keeps all.
  std::vector<PolicyPoint> policies();

 private:
  struct Searches;
  Searches& searches();
  SearchResult compared(SearchResult, size_t limit);
  SearchResult search_within(size_t limit);
  StepPlans plans_by(const Plan&) const;
  PlannedSteps as_given() const;
  PlannedSteps found(SearchResult, size_t limit) const;
  PlannedSteps foretold(PlannedSteps) const;

  RunSteps run_;
  RunRequest request_;
  Machine machine_;
  std::unique_ptr<Searches> searches_;  // once something is searched for
};

}  // namespace spool
