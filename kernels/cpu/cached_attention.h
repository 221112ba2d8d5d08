#pragma once

// Attention over a cache on the cpu, in two ways, and its workspace.  Many queries are computed in
// tiles, as in attention without a cache.  A few would leave most of a tile empty: they read the
// keys row by row, in the order of memory, and its bandwidth limits the speed.

#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cpu/attention_workspace.h"

namespace spool::cpu {

constexpr int64_t many_queries = 12;

inline bool has_few_queries(const CachedExtents& e) { return e.T < many_queries; }

// Bytes of workspace of one thread.
template <class S>
size_t cached_lane_bytes(const CachedExtents& e) {
  Carver lane;
  if (has_few_queries(e)) {
    lane.take<S>(e.P);
  } else {
    ForwardLane<S>(lane, e.D);
  }
  return lane.used();
}

}  // namespace spool::cpu
