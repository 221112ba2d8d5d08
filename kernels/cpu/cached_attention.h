#pragma once

// How attention over a cache is computed on the cpu, and in how much memory.  Many queries are
// computed in tiles, as attention without a cache.  Few would leave its tiles empty: they read the
// keys row by row, in the order of memory, whose speed then decides.

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
