#pragma once

// How the backward pass of layer normalisation is shared on cuda: groups of rows, by the extents
// alone, each with partial sums of dweight and dbias in the workspace, one after the other.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/dtype.h"
#include "spool/runtime/integer.h"

namespace spool::cuda {

struct LayerNormGroups {
  int64_t rows = 1, count = 0;

  LayerNormGroups(int64_t N, int64_t C, DType type) {
    // As many as a device of 132 multiprocessors has under way at a time, where a warp has a tile
    // of a row; a number, for the sums would depend on the device.  Of whole steps of four rows.
    constexpr int64_t multiprocessors = 132, warps = 16, max_blocks = 5;
    constexpr int64_t min_rows = 8, step = 4;
    const int64_t columns = 32 * 16 / static_cast<int64_t>(size_of(type));
    const int64_t tiles = std::max<int64_t>(1, spool::ceil_div(C, columns));
    const int64_t max_groups = multiprocessors * std::clamp<int64_t>(warps / tiles, 1, max_blocks);
    rows = std::max(spool::round_up(spool::ceil_div(N, max_groups), step), min_rows);
    count = spool::ceil_div(N, rows);
  }
};

}  // namespace spool::cuda
