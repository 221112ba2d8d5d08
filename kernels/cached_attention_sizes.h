#pragma once

// How few queries are shared out on cuda: each head's keys are cut into equal pieces, which blocks
// attend to on their own, and whose results are then put together in order.  Nothing of this
// depends on the position but how many of the pieces there are.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

// From how many queries on tiles of them are worth their while.
constexpr int64_t many_queries = 16;

constexpr int64_t min_keys = 64, max_keys = 512;  // of a piece
constexpr int64_t enough_pieces = 64;

// Keys of a piece, in a cache of P rows.
constexpr int64_t piece_keys(int64_t P) {
  const int64_t wanted = spool::ceil_div(P, enough_pieces);
  return std::clamp(spool::round_up(wanted, min_keys), min_keys, max_keys);
}
constexpr int64_t count_pieces(int64_t P, int64_t keys) {
  return spool::ceil_div(keys, piece_keys(P));
}

// Floats that pieces leave of each query: the largest score, the sum of weights, and y.
constexpr int64_t piece_floats(int64_t D) { return 2 + D; }

}  // namespace spool::cuda
