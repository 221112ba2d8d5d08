#pragma once

// Repeated work as graphs: each kind of it is captured the first time it runs, and replayed from
// then on, without a tape, at the same addresses.

#include <array>
#include <functional>
#include <map>

#include "spool/runtime/stream.h"

namespace spool {

class CapturedGraphs {
 public:
  using Kind = std::array<int64_t, 2>;

  // Call it before work is enqueued.  Discards the graphs if live memory has other addresses than
  // when they were captured.
  void begin(const Stream& stream) {
    const uint64_t live_hash = stream.memory().live_hash;
    if (live_hash != live_hash_) discard();
    live_hash_ = live_hash;
  }
  // Call it when work fails: a graph that was captured or replayed in part must not be replayed.
  void discard() { graph_of_kind_.clear(); }

  // Enqueues work, which is the same for all of its kind.
  void enqueue(const Kind& kind, const std::function<void()>& work, Stream& stream) {
    Graph& graph = graph_of_kind_[kind];
    if (!graph) graph = stream.capture(work);
    stream.replay(graph);
  }

 private:
  std::map<Kind, Graph> graph_of_kind_;
  uint64_t live_hash_ = 0;  // of the live memory when the graphs were captured
};

}  // namespace spool
