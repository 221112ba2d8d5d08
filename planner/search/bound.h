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
//
// With a link, a value may also be sent.  Let F and B be the seconds of work before and after the
// instant, r those of recomputation after it, and x the bytes that are sent at w bytes a second: a
// step takes at least F and x / w before, and B + r and x / w after.  Weigh the two bounds before
// the instant by 1 - n and n, those after it by 1 - m and m, with n and m between 0 and 1.  Their
// sum beyond F + B is a cut in which an op costs 1 - m of its seconds and a byte that is not live
// (m + n) / w, less n F + m B; the best price of a byte that is live is the same.  At a given ratio
// p of the two prices it is linear in m, so that one of two cases is best:
//
//   m = 0:  cut(p) - p (C + w F)                  with p at most 1 / w
//   n = 0:  (cut(p) - p (C + w B)) / (1 + p w)
//
// where C are the bytes that may be live besides those that must.

#include <map>
#include <vector>

#include "spool/autograd/program.h"
#include "spool/planner/search/min_cut.h"

namespace spool {

// Copies that a step may make, at so many bytes a second each way, beside the work that it has
// before and after the instant if all is kept.
struct InstantLink {
  double bytes_per_second = 0, seconds_before = 0, seconds_after = 0;
};

// What backward still needs at an instant, and what it costs to recompute it.
class InstantBound {
 public:
  // The instant is in the node's forward, when nodes after it have not run.  `seconds`: of running
  // each node's op again.  `live`: bytes at the instant if all is kept.
  static InstantBound in_forward(const Program&, NodeId node,
                                 const IdTable<NodeId, double>& seconds, size_t live);
  // The instant is in the node's backward, when nodes after it have run backward.  What it saves
  // need not be live yet: a tape recomputes each value just before backward reads it.  `live`:
  // without what only the node's forward reads.
  static InstantBound in_backward(const Program&, NodeId node,
                                  const IdTable<NodeId, double>& seconds, size_t live);
  // The instant is in backward, when the node has run, and those below it have not.
  static InstantBound below(const Program&, NodeId node, const IdTable<NodeId, double>& seconds,
                            size_t live);

  // Seconds that a step in which so many bytes are live spends on recomputation at least; infinite
  // if nothing fits.
  double seconds_within(double bytes);
  // The same, if bytes may also be sent before the instant and come back after it: seconds that the
  // step takes longer.
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
    int vertex = 0, maker = 0;
  };
  struct PricedOp {
    int edge = 0;
    double seconds = 0;
    int vertex = 0;
  };
  struct Builder;
  // Backward of the nodes before `end` still comes.  `free`: values that are live at the instant,
  // and are none of what is chosen.
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
  std::vector<Cut> cuts_;  // corners of the lower hull that are known, by rising bytes
  std::map<double, Cut> cuts_by_price_;  // that were solved; few prices are asked for
};

}  // namespace spool
