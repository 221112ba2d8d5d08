#pragma once

// A lower bound on the seconds of a whole step within a budget, by the bounds of a few of its
// instants (bound.h): the loss, where it forms its gradient, and the fullest node of five layers
// from the last to the first.

#include <vector>

#include "spool/planner/search/bound.h"
#include "spool/planner/search/measured_options.h"

namespace spool {

class StepBound {
 public:
  // The segments must outlive this.
  StepBound(const MeasuredSegments&, int64_t micro_batches);

  // `rows_allowed`: of each choice of rows.  Infinite if nothing fits.
  double seconds_within(size_t bytes, const std::vector<bool>& rows_allowed);

 private:
  struct Instant {
    NodeId node = 0;
    InstantBound bound;
  };
  std::vector<NodeId> instants() const;

  const MeasuredSegments& measured_;
  double micro_batches_;
  std::vector<Instant> instants_;
};

}  // namespace spool
