#pragma once

// Division of layer norm backward on cuda into groups of rows, which depend only on extents and
// type.  Each group has its partial sums of dweight and dbias in the workspace, in this order.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/dtype.h"
#include "spool/runtime/integer.h"

namespace spool::cuda {

struct LayerNormGroups {
  int64_t rows = 1, count = 0;

  LayerNormGroups(int64_t N, int64_t C, DType type) {
    // The groups that 132 multiprocessors run at a time, with a warp for each tile of a row.  The
    // number is fixed, or the sums would depend on the device.  A group's rows are a multiple of 4.
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
