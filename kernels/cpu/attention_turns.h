#pragma once

// The turns of attention backward on the cpu: the pieces of keys of a head add to dq in the order
// of their keys.  A tile of queries has a turn, the number of the next tile of keys to be added,
// and begins with the first that one of its queries sees: those before it are passed over.

#include <algorithm>
#include <atomic>

#include "spool/kernels/attention.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {

// Tiles of so many queries, and of so many keys.
struct AttentionTurns {
  const AttentionBackward& kernel;
  const AttentionExtents& extents;
  int64_t queries, keys;
  int32_t* turn;  // (B, H, tiles of queries)

  int64_t query_tiles() const { return ceil_div(extents.T, queries); }

  // Of text b: the first tile of keys that a tile of queries sees, at most that of its last query.
  int64_t first(int64_t b, int64_t query_tile) const {
    if (!kernel.first) return 0;
    const int32_t* const of_text = kernel.first.as<int32_t>() + b * extents.T;
    const int64_t begin = query_tile * queries, end = std::min(begin + queries, extents.T);
    const int64_t key = *std::min_element(of_text + begin, of_text + end);
    return std::clamp<int64_t>(key, 0, end - 1) / keys;
  }

  void begin() const {
    int32_t* at = turn;
    for (int64_t b = 0; b < extents.B; ++b) {
      for (int64_t h = 0; h < extents.H; ++h) {
        for (int64_t i = 0; i < query_tiles(); ++i) *at++ = static_cast<int32_t>(first(b, i));
      }
    }
  }

  // Waits for the turn of these keys, adds, and ends it.
  template <class Add>
  void take(int64_t b, int64_t h, int64_t query_tile, int64_t key_tile, const Add& add) const {
    std::atomic_ref<int32_t> own(turn[(b * extents.H + h) * query_tiles() + query_tile]);
    for (int32_t now = own.load(); now != key_tile; now = own.load()) own.wait(now);
    add();
    own.store(static_cast<int32_t>(key_tile) + 1);
    own.notify_all();
  }
};

}  // namespace spool::cpu
