#pragma once

// Rehearses plans and lays out their memory, each once.  What is found depends on the plan alone,
// so it does not depend on earlier queries.

#include <deque>
#include <unordered_map>
#include <utility>

#include "spool/planner/search/searched_step.h"

namespace spool {

class Trials {
 public:
  // A plan that was rehearsed.
  struct Trial {
    FoundPlan found = {};
    size_t live = 0;        // most live bytes of the run, without a layout
    size_t other_peak = 0;  // of the rest of the run
    size_t best_fit = 0;    // the step's peak without a layout
    bool is_laid_out = false;
  };

  explicit Trials(SearchedStep step) : step_(std::move(step)) {}

  // The plan with its costs.  Until it is laid out, its peak is its live bytes.
  Trial& of(Plan, int64_t loss_rows);
  // Lays it out, unless its live bytes are more than `bytes`.
  const FoundPlan& laid_out(Trial&, size_t bytes);

  int rehearsals() const { return rehearsals_; }

 private:
  // Of other work; at least so many bytes if these are no more than what a step has live.
  size_t other_peak(const Plan&, size_t live) const;

  SearchedStep step_;
  std::deque<Trial> all_;
  std::unordered_multimap<uint64_t, Trial*> by_hash_;
  int rehearsals_ = 0;
};

}  // namespace spool
