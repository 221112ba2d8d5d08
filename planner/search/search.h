#pragma once

// Searches for the fastest plan of a step within a budget, with a lower bound that says how far it
// can be from the best.  docs/planner.md explains how it works.
//
// Levels are a ladder of budgets, the same for every step.  The plan of the highest level within a
// budget competes with a search for the budget itself, with plans that keep everything or treat
// equal segments alike, with policies as people set them by hand, and with a search among plans
// that only recompute: a budget gets the fastest of all.  So a larger budget gives no plan that is
// slower by more than 0.1 %, and equal steps on equal machines have equal plans.

#include <cstddef>
#include <memory>

#include "spool/planner/search/searched_step.h"

namespace spool {

struct SearchResult {
  FoundPlan found = {};
  // Whether `found` fits.  If not, it is the plan of the smallest peak, the smallest possible
  // budget.
  bool fits = true;
  size_t keep_all_peak = 0;
  double keep_all_seconds = 0;
  // A lower bound on the seconds of any schedule of the step within the budget; 0: not known.
  double lower_bound = 0;
  int rehearsals = 0;
  double plan_seconds = 0;  // the duration of the search
};

class Search {
 public:
  Search(const SearchedStep&, const Levers&);
  ~Search();

  // The fastest plan within a budget of device bytes.
  SearchResult plan(size_t budget);
  // The plan that keeps everything if it fits into this many bytes, else the fastest that fits.
  SearchResult keep_all_or_plan(size_t bytes);
  // What plans of a budget are compared with: the plan that keeps everything, whether it fits or
  // not, and the lower bound.
  SearchResult comparison(size_t budget);
  // What a plan within the budget is expected to take, by sums of what options cost, before any is
  // tried, with room for holes if that is there; infinite if none may fit.
  double expected_seconds(size_t budget);
  // The smallest possible budget: the smallest peak of any plan that the search lays out.
  size_t smallest_budget();
  // The peak of keeping everything.
  size_t keep_all_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spool
