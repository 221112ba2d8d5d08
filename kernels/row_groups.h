#pragma once

// How a sum over N rows of C columns is shared on cuda: groups of rows, by the extents alone, each
// with a partial sum of its own in the workspace; these are then added up in order.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

struct RowGroups {
  int64_t rows = 1, count = 0;

  RowGroups(int64_t N, int64_t C) {
    // Blocks enough to fill a device with several each, of rows enough to be worth a partial sum.
    constexpr int64_t blocks = 1024, columns_of_block = 256, min_rows = 32;
    const int64_t tiles = std::max<int64_t>(1, spool::ceil_div(C, columns_of_block));
    const int64_t max_groups = std::max<int64_t>(1, blocks / tiles);
    rows = std::max(spool::ceil_div(N, max_groups), min_rows);
    count = spool::ceil_div(N, rows);
  }
};

}  // namespace spool::cuda
