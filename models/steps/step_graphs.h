// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The graphs of a training step.  Micro-steps are of four kinds: the first, which allocates the
// gradients; those in the middle, which add to them; the last, which ends in the optimizer; and one
// that is both first and last.  Each kind is captured the first time it runs, and replayed from
// then on, without a tape, at the same addresses.

#include <array>
#include <functional>

#include "spool/runtime/stream.h"

namespace spool {

class StepGraphs {
 public:
  // Call it before the first micro-step.  Discards the graphs if the live memory is at other
  // addresses than when they were captured.
  void begin_step(const Stream&);
  // Call it when a step fails: what it has captured, or replayed in part, is not to be replayed.
  void discard() { graph_of_kind_ = {}; }

  // Enqueues a micro-step; its work is the same for all micro-steps of its kind.
  void enqueue(bool first, bool last, const std::function<void()>& work, Stream&);

 private:
  std::array<Graph, 4> graph_of_kind_ = {};
  uint64_t live_hash_ = 0;  // of the live memory when the graphs were captured
};

}  // namespace spool
