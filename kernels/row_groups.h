#pragma once

// Division of a sum over N rows of C columns on cuda into groups of rows, which depend only on N
// and C.  Each group has a partial sum in the workspace; these are then added up in order.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

struct RowGroups {
  int64_t rows = 1, count = 0;

  RowGroups(int64_t N, int64_t C) {
    // Enough groups for several blocks on each multiprocessor; enough rows in a group to be worth a
    // partial sum.
    constexpr int64_t blocks = 1024, columns_of_block = 256, min_rows = 32;
    const int64_t tiles = std::max<int64_t>(1, spool::ceil_div(C, columns_of_block));
    const int64_t max_groups = std::max<int64_t>(1, blocks / tiles);
    rows = std::max(spool::ceil_div(N, max_groups), min_rows);
    count = spool::ceil_div(N, rows);
  }
};

}  // namespace spool::cuda
