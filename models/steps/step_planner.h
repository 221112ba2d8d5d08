#pragma once

// Plans the steps of a run of any model, and its other work: as they are set by hand, or by a
// search (planner/search/search.h) within the budget.  A search by the nominal clock chooses chunks
// (chunk_choice.h), and one by the run's own everything else.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/models/steps/planned_steps.h"
#include "spool/models/steps/run_request.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/search/search.h"

namespace spool {

// A plan that treats all layers alike by a simple rule, as people set it by hand, and its costs.
struct PolicyPoint {
  std::string name = {};  // "recompute norms,gelu"
  size_t peak = 0;        // of the run, bytes of the device
  double seconds = 0;     // of a step
};

// The costs of a run under many budgets, and under policies that people set by hand.
struct Frontier {
  std::vector<PlannedSteps> points = {};   // by rising budget
  std::vector<PolicyPoint> policies = {};  // if requested; the first keeps all
};

class PartsChoice;  // parts_choice.h

class StepPlanner {
 public:
  // The request says what may be chosen.  The rest comes from its plan or, without one, from its
  // policy, which also has the chunks of a given plan.
  StepPlanner(RunSteps, RunRequest, const Machine&);
  ~StepPlanner();

  // The plan set by hand; or a search's, if something may be chosen and there is a budget, or the
  // one set by hand exceeds the free memory.  Has a refusal if it does not fit.
  PlannedSteps plan();
  // The same in two parts: without the costs of keeping all and the lower bound, which compare()
  // adds to the last plan.
  PlannedSteps plan_only();
  void compare(PlannedSteps&);
  // At most the seconds of any plan within the budget, or the free bytes: what compare() says,
  // known before the search.
  double lower_bound();
  // What a plan is expected to take, known before the search, too; infinite if none may fit.
  double expected_seconds();

  // The fastest plan of at most `bytes` device bytes, or the one of the smallest peak if none fits.
  // Its budget is its peak, and it has no refusal.  Its lower bound is 0, none, if values are
  // offloaded or the optimizer's state is on the host by hand.
  PlannedSteps plan_within(size_t bytes);
  // Whether a plan would fit if what is recomputed and offloaded were not set by hand.
  bool can_choose_within(size_t bytes);
  // The smallest limit with a plan that fits: the same by any clock of the machine.
  size_t smallest_budget();
  // The peak of the plan that keeps everything.
  size_t keep_all_peak();

  // Plans for budgets spread evenly from the smallest to that of keeping everything; no policies.
  Frontier frontier();
  // Policies that people know, with the chunks and the place of the optimizer's state that are set
  // by hand; the first keeps all.
  std::vector<PolicyPoint> policies();

 private:
  struct Searches;
  Searches& searches();
  const PartsChoice& parts() const;
  StepChunks chunks_with_parts(StepChunks, const Plan&) const;
  size_t room() const;
  SearchResult compared(SearchResult, size_t limit);
  PlannedSteps search_within(size_t limit);
  double slowed_by_chunks(const PlannedSteps&, size_t limit);
  StepPlans plans_by(const Plan&) const;
  PlannedSteps as_given() const;
  PlannedSteps plan_all_else();
  void exchange_at_a_time(int buckets);
  PlannedSteps found(SearchResult, size_t limit) const;
  PlannedSteps foretold(PlannedSteps) const;

  RunSteps run_;
  RunRequest request_;
  Machine machine_;
  mutable std::unique_ptr<PartsChoice> parts_;  // created by the first plan
  std::unique_ptr<Searches> searches_;          // created by the first search
};

}  // namespace spool
