#pragma once

// How messages travel over a backend whose calls move pieces of one size (NCCL's): a kernel packs
// them into pieces, and one unpacks those that do not lie where pieces arrive.

#include <cstddef>

#include "spool/runtime/integer.h"

namespace spool {

// Bytes from one piece to the next, of at most so many bytes: a multiple that every call takes.
constexpr size_t packed_piece(size_t bytes) { return round_up<size_t>(bytes, 512); }

// One piece of each rank.
constexpr size_t packed_bytes(int ranks, size_t piece) {
  return static_cast<size_t>(ranks) * packed_piece(piece);
}

}  // namespace spool
