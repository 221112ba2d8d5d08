#pragma once

// A lower bound on the seconds of a whole step within a budget, from the bounds of a few of its
// instants (instant_bound.h): the loss, where it forms its gradient, and the node with most live
// bytes of five layers from the last to the first.
//
// A layer that may run in chunks may need less in that node.  Then it pays at least what a region
// in chunks costs; and just before its backward, when no chunk runs, the layers below it still pay
// as at any other instant, for the bytes it leaves them.  The layer's bound is the lower of the two
// cases.
//
// A layer is forced if without a region it fits in no case: its fullest node alone needs more.
// Each forced layer pays for its cheapest region around that node, and what such regions run again
// is free in the cut of every instant; the sum is a bound as well.

#include <optional>
#include <vector>

#include "spool/planner/search/bound/instant_bound.h"
#include "spool/planner/search/measured_options.h"

namespace spool {

class StepBound {
 public:
  // The segments must outlive this.  `bytes_per_second`: of the link, each way; 0: no link.
  StepBound(const MeasuredSegments&, int64_t micro_batches, double bytes_per_second);

  // With at most `bytes` live.  Infinite if nothing fits.
  double seconds_within(size_t bytes);

 private:
  // An instant of a step, and the copies around it.
  struct Moment {
    InstantBound bound;
    InstantLink link = {};
  };
  struct Instant {
    NodeId node = 0;
    Moment moment;
    // If the node's segment may run in chunks: just before its backward, and seconds of a region.
    std::optional<Moment> before = {};
    double min_of_regions = 0;
    // Just before the segment's backward, or else the instant, if what regions run again is free.
    std::optional<Moment> if_forced = {};
  };
  // A layer that may run in chunks.
  struct Layer {
    double fixed = 0;           // bytes that are live in its fullest node whatever is kept
    double region_seconds = 0;  // of its cheapest region around that node
  };
  // Rows of the loss of some range: at least these seconds of a step, and these bytes in each node
  // that is cut, beyond those of the first choice of rows.
  struct Rows {
    double seconds = 0;
    IdTable<NodeId, double> live = {};
  };
  void add_rows();
  double chunks_of(size_t row_choice) const;
  double seconds_within(Moment&, double bytes, double forced = 0) const;
  struct Builder;
  double forced_seconds(double bytes) const;
  double extra_seconds(double bytes, const Rows&);
  double extra_seconds_with_state(double bytes, const Rows&);

  const MeasuredSegments& measured_;
  double micro_batches_, bytes_per_second_;
  double gain_of_regions_ = 0;  // of all segments
  std::vector<Instant> instants_;
  std::vector<Layer> layers_;
  std::vector<Rows> rows_;  // by rising seconds
};

}  // namespace spool
