#pragma once

// Division of attention of few queries over a cache on cuda: the keys of each head are cut into
// equal pieces.  A block computes attention over one piece; the results are then merged in order.
// The size of a piece depends only on the rows of the cache, the number of pieces on the position.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

// From this many queries on, the kernel that computes tiles of queries is faster.
constexpr int64_t many_queries = 16;

constexpr int64_t min_keys = 64, max_keys = 512;  // of a piece
constexpr int64_t wanted_pieces = 64;

// Keys in a piece, for a cache of P rows.
constexpr int64_t piece_keys(int64_t P) {
  const int64_t wanted = spool::ceil_div(P, wanted_pieces);
  return std::clamp(spool::round_up(wanted, min_keys), min_keys, max_keys);
}
// Number of pieces of the first `keys` rows.
constexpr int64_t count_pieces(int64_t P, int64_t keys) {
  return spool::ceil_div(keys, piece_keys(P));
}

// Floats that a piece writes for each query: the largest score, the sum of weights, and y.
constexpr int64_t piece_floats(int64_t D) { return 2 + D; }

}  // namespace spool::cuda
