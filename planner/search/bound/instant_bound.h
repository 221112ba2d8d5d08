#pragma once

// A lower bound on the seconds that recomputation adds to a step within a budget, whatever the
// schedule.
//
// Think of an instant of a step: a node that runs, with all that must be live then.  What backward
// still needs afterwards, and is not live at that instant, must be recomputed after it, from what
// is live.  Choosing what is live is a minimum cut in which a value costs its bytes times a price
// and an op its seconds.  At any price, the cut less the price of all available bytes is a lower
// bound on the seconds (Lagrange); the best price gives the best bound.  The bound of a step is the
// largest over its instants.
//
// With a link, a value may also be offloaded.  Let F and B be the seconds of work before and after
// the instant, r those of recomputation after it, and x the bytes offloaded at w bytes per second.
// A step takes at least F and x / w before, and B + r and x / w after.  Weigh the two bounds before
// the instant by 1 - n and n, those after it by 1 - m and m, with n and m between 0 and 1.  Their
// sum beyond F + B is a cut in which an op costs 1 - m of its seconds and a byte that is not live
// (m + n) / w, less n F + m B; the best price of a byte that is live is the same.  At a given ratio
// p of the two prices it is linear in m, so one of two cases is best:
//
//   m = 0:  cut(p) - p (C + w F)                  with p at most 1 / w
//   n = 0:  (cut(p) - p (C + w B)) / (1 + p w)
//
// where C is the number of bytes that may be live beyond those that must be.

#include <map>
#include <vector>

#include "spool/autograd/program.h"
#include "spool/planner/search/bound/min_cut.h"

namespace spool {

// A link to the host at this rate each way, and the seconds of work before and after the instant,
// if all is kept, during which it can copy.
struct InstantLink {
  double bytes_per_second = 0, seconds_before = 0, seconds_after = 0;
};

// The bound of one instant: what backward still needs then, and what recomputing it costs.
class InstantBound {
 public:
  // An instant in the node's forward, before later nodes have run.  `seconds`: of running each
  // node's op again.  `live`: bytes at the instant if all is kept.
  static InstantBound in_forward(const Program&, NodeId node,
                                 const IdTable<NodeId, double>& seconds, size_t live);
  // An instant in the node's backward, when later nodes have run backward.  What it saves need not
  // be live yet: a tape recomputes each value just before backward reads it.  `live`: without what
  // only the node's forward reads.
  static InstantBound in_backward(const Program&, NodeId node,
                                  const IdTable<NodeId, double>& seconds, size_t live);
  // An instant in backward, after the node's and before that of the nodes below it.
  static InstantBound below(const Program&, NodeId node, const IdTable<NodeId, double>& seconds,
                            size_t live);

  // The minimum seconds of recomputation in a step with at most `bytes` live at the instant;
  // infinite if nothing fits.
  double seconds_within(double bytes);
  // The same if values may also be offloaded before the instant and come back after it: the minimum
  // of seconds that the step takes longer.
  double seconds_within(double bytes, const InstantLink&);

 private:
  // What a cut at some price recomputes and keeps.
  struct Cut {
    double seconds = 0, bytes = 0;
    bool is_final = false;  // no cut lies below the line from this one to the next
  };
  struct PricedValue {
    int edge = 0;
    double bytes = 0;
    int vertex = 0, producer = 0;
  };
  struct PricedOp {
    int edge = 0;
    double seconds = 0;
    int vertex = 0;
  };
  struct Builder;
  // Backward of the nodes before `end` still comes.  `free`: values that are live at the instant
  // whatever is chosen.
  InstantBound(const Program&, NodeId end, const std::vector<ValueId>& free,
               const IdTable<NodeId, double>& seconds, size_t live);
  void build(const Program&, NodeId end, const std::vector<ValueId>& free,
             const IdTable<NodeId, double>& seconds);
  Cut solve();
  Cut cut_of_fewest_bytes();
  Cut cut_at(double seconds_per_byte);
  double best_price(double left);
  double seconds_at(double price, double left);

  MinCut network_;
  double fixed_ = 0;  // bytes that are live at the instant whatever is kept
  double unit_ = 1;   // seconds that a capacity of 1 stands for
  std::vector<PricedValue> values_;
  std::vector<PricedOp> ops_;
  std::vector<Cut> cuts_;                // known corners of the lower hull, by rising bytes
  std::map<double, Cut> cuts_by_price_;  // cuts that were solved; few prices are asked for
};

}  // namespace spool
