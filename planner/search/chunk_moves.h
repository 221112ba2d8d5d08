#pragma once

// Changes the chunks of a plan that is laid out, one lever at a time: the rows of its loss, and the
// number of chunks of its alike regions.  A search tries powers of two; what lies between two of
// them is reached from here.

#include "spool/planner/search/measured_options.h"
#include "spool/planner/search/trials.h"

namespace spool {

// What a step costs with some number of rows of the loss: its most live bytes, and its seconds.
struct CostsOfRows {
  size_t bytes = 0;
  double seconds = 0;
};
// About the seconds of a step with the most rows that `bytes` has room for, between some rows and
// twice as many: bytes are taken as linear in rows, seconds as linear in chunks.
double seconds_between(const CostsOfRows& fewer, const CostsOfRows& twice, size_t bytes);

class ChunkMoves {
 public:
  // The arguments must outlive it.
  ChunkMoves(const MeasuredSegments&, const Levers&, Trials&);

  // The plan with as few chunks as fit into the budget, if that makes it faster.
  FoundPlan faster_within(size_t budget, FoundPlan);
  // The plan with the chunks that take fewest bytes of the device.
  FoundPlan smaller(FoundPlan);

 private:
  // What is cut into `chunks`, and cannot be cut into more than `extent`: the loss, or the regions
  // of so many nodes that have as many chunks.
  struct Lever {
    bool is_loss = false;
    NodeId nodes = 0;
    int64_t chunks = 1, extent = 1;
  };
  std::vector<Lever> levers_of(const FoundPlan&) const;
  Trials::Trial& with_chunks(const FoundPlan&, const Lever&, int64_t chunks);
  bool fits(Trials::Trial&, size_t budget);
  void set_fewest(FoundPlan&, const Lever&, size_t budget);

  const MeasuredSegments& measured_;
  const Levers& levers_;
  Trials& trials_;
  int64_t loss_extent_ = 0;  // rows of the loss, if it may be cut
};

}  // namespace spool
