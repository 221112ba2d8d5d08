// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The search for a plan (planner/search/search.h) of a training step of any model.

#include <memory>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/steps/step_request.h"
#include "spool/planner/search/search.h"

namespace spool {

// `other_peak`: of what the run does besides its steps; none: nothing.
SearchedStep searched_step(const StepDescription&, const Machine&, OtherPeak other_peak = {});

// Searches with a request's choices.  What may not be chosen is that of its plan or, without one,
// that of its policy.
class StepSearch {
 public:
  StepSearch(const StepDescription&, const StepRequest&, const Machine&, OtherPeak = {});
  ~StepSearch();

  // The fastest plan of at most so many bytes of the device, or the one of the smallest peak if
  // none fits.  It has no lower bound, 0, if values are offloaded, or the optimizer's state is on
  // the host, by hand.
  SearchResult plan(size_t limit);
  // The plan that keeps everything, unless it does not fit.
  SearchResult keep_all_or_plan(size_t limit);
  // Whether a plan would fit if what is recomputed and offloaded were not set by hand.
  bool can_choose_within(size_t limit);
  // The smallest limit within which there is a plan.
  size_t smallest_budget();
  // The peak of the plan that keeps everything.
  size_t keep_all_peak();

 private:
  SearchResult compared(SearchResult, size_t limit);

  Levers levers_;
  std::unique_ptr<Search> search_;
  // What could be chosen, if what is recomputed is set by hand.
  std::unique_ptr<Search> free_search_;
  double seconds_ = 0;  // that it took to begin
};

}  // namespace spool
