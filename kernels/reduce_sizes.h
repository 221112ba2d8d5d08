#pragma once

// How sums over all elements are shared on cuda: each block sums a piece of one tensor, and a last
// block their sums, which it finds in the workspace.

#include <cstdint>

namespace spool::cuda {

constexpr int64_t sum_piece = 16384;  // elements

constexpr int64_t sum_pieces(int64_t numel) { return (numel + sum_piece - 1) / sum_piece; }

}  // namespace spool::cuda
