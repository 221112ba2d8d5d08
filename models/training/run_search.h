// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Searches the plan of a training run (planner/search/search.h): of its step, with room for the
// evaluation and the text sample around it.

#include <memory>

#include "spool/models/training/planned_run.h"

namespace spool {

// A plan by a simple rule that treats all layers alike, as people set it by hand, and what it
// takes.
struct PolicyPoint {
  std::string name = {};  // "recompute norms,gelu"
  size_t peak = 0;        // of the run, bytes of the device
  double seconds = 0;     // of a step
};

class RunSearch {
 public:
  // The request says what may be chosen; what may not is that of its plan or, without one, that of
  // its policy and of the configuration.
  RunSearch(const TrainingConfig&, RunRequest, const Machine&);
  ~RunSearch();

  // The fastest run of at most so many bytes of the device, or the one of the smallest peak if none
  // fits.  Its budget is its peak, and no refusal is in it.  It has no lower bound, 0, if values
  // are offloaded, or the optimizer's state is on the host, by hand.
  PlannedRun plan(size_t limit);
  // The run that keeps everything, unless it does not fit.
  PlannedRun keep_all_or_plan(size_t limit);
  // Whether a run would fit if what is recomputed and offloaded were not set by hand.
  bool can_choose_within(size_t limit);
  // The smallest limit within which there is a run.
  size_t smallest_budget();
  // The peak of the run that keeps everything.
  size_t keep_all_peak();
  // Policies that people know, with the chunks and the place of the optimizer's state that are set
  // by hand; the first keeps all.
  std::vector<PolicyPoint> policies();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace spool
