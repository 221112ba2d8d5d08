#pragma once

// The graphs of a training step.  Its micro-steps are of at most three kinds, the first, which
// makes the gradients, those in the middle, which add to them, and the last, which ends in the
// optimizer (one that is first and last is a kind of its own).  Each kind is recorded the first
// time it comes and replayed from then on, without a tape, on the same memory.

#include <array>
#include <functional>

#include "spool/runtime/stream.h"

namespace spool {

class StepGraphs {
 public:
  // Before the first micro-step of a step.  Where what is held does not lie where it did when the
  // graphs were recorded, they are let go.
  // Likewise if the step before it did not end.
  void begin_step(const Stream&);
  void end_step() { ended_ = true; }

  // Enqueues the work of a micro-step, which is the same for all of its kind.
  void enqueue(bool first, bool last, const std::function<void()>& work, Stream&);

 private:
  std::array<Graph, 4> graph_of_kind_ = {};
  bool ended_ = true;
  uint64_t live_hash_ = 0;  // of what is held when a step begins
};

}  // namespace spool
