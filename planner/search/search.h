#pragma once

// The search for the fastest plan of a step within a budget, with a proof of how far it can be from
// the best.  docs/planner.md explains how it works.
//
// The plan of a budget is that of the highest level within it; levels are a ladder of budgets, the
// same for every step.  Beside them stand plans that keep everything or treat equal segments alike,
// and a search of plans that only recompute: of all these a budget gets the fastest.  So a larger
// budget never gives a slower plan, and equal steps on equal machines have equal plans.

#include <cstddef>
#include <memory>

#include "spool/planner/search/searched_step.h"

namespace spool {

struct SearchResult {
  FoundPlan found = {};
  // Whether `found` fits.  If not, it is the plan of the smallest peak, which is the smallest
  // budget that can be met.
  bool fits = true;
  size_t keep_all_peak = 0;
  double keep_all_seconds = 0;
  // Seconds that every schedule of the step within the budget takes; 0: no bound is known.
  double lower_bound = 0;
  int rehearsals = 0;
  double plan_seconds = 0;  // that the search took
};

class Search {
 public:
  Search(SearchedStep, Levers);
  ~Search();

  // The fastest plan within a budget in bytes of the device.
  SearchResult plan(size_t budget);
  // The plan that keeps everything if it fits into so many bytes, else the fastest that fits.
  SearchResult keep_all_or_plan(size_t bytes);
  // The smallest budget that can be met: the smallest peak of any plan that the search lays out.
  size_t smallest_budget();
  // The peak of keeping everything.
  size_t keep_all_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spool
