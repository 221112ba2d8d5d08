#pragma once

// A lower bound on the seconds that recomputation adds to a step within a budget, whatever the
// schedule.
//
// Think of an instant of a step: a node that runs, with all that must be live then.  What backward
// still needs afterwards, and is not live at that instant, must be recomputed after it, from what
// is live.  To choose what is live is a minimum cut in which a value costs its bytes times a price
// and an op its seconds; at any price, the cut less the price of all bytes there are is a lower
// bound on the seconds (Lagrange), and the best price gives the best bound.  The bound of a step is
// the largest over its instants.

#include <vector>

#include "spool/autograd/program.h"
#include "spool/planner/search/min_cut.h"

namespace spool {

// What backward still needs at an instant, and what it costs to recompute it.
class InstantBound {
 public:
  // The instant is the node's forward or backward; nodes after it have run backward, or not at all.
  // `seconds`: of running each node's op again.  `live`: bytes at the instant if all is kept.
  InstantBound(const Program&, NodeId node, const IdTable<NodeId, double>& seconds, size_t live);

  // Seconds that a step with so many live bytes spends on recomputation at least; infinite if
  // nothing fits.  `saved`: bytes by which the node needs less than in the step that keeps all.
  double seconds_within(size_t bytes, int64_t saved = 0);

 private:
  // What a cut at some price recomputes and keeps.
  struct Cut {
    double seconds = 0, bytes = 0;
    bool is_final = false;  // no cut lies below the line from this one to the next
  };
  struct PricedValue {
    int edge = 0;
    double bytes = 0;
    int vertex = 0, maker = 0;
  };
  struct PricedOp {
    int edge = 0;
    double seconds = 0;
    int vertex = 0;
  };
  struct Builder;
  void build(const Program&, NodeId node, const IdTable<NodeId, double>& seconds);
  Cut solve();
  Cut cut_of_fewest_bytes();
  Cut cut_at(double seconds_per_byte);

  MinCut network_;
  double fixed_ = 0;  // bytes that are live at the instant whatever is kept
  double unit_ = 1;   // seconds that a capacity of 1 stands for
  std::vector<PricedValue> values_;
  std::vector<PricedOp> ops_;
  std::vector<Cut> cuts_;  // corners of the lower hull that are known, by rising bytes
};

}  // namespace spool
