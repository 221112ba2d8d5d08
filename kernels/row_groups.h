#pragma once

// How a sum over N rows of C columns is shared on cuda: groups of rows, by the extents alone, each
// with a partial sum of its own in the workspace; these are then added up in order.

#include <algorithm>
#include <cstdint>

namespace spool::cuda {

struct RowGroups {
  int64_t rows = 1, count = 0;

  RowGroups(int64_t N, int64_t C) {
    // Blocks enough to fill a device with several each, of rows enough to be worth a partial sum.
    constexpr int64_t blocks = 1024, columns_of_block = 256, fewest_rows = 32;
    const int64_t tiles = std::max<int64_t>(1, (C + columns_of_block - 1) / columns_of_block);
    const int64_t most = std::max<int64_t>(1, blocks / tiles);
    rows = std::max((N + most - 1) / most, fewest_rows);
    count = (N + rows - 1) / rows;
  }
};

}  // namespace spool::cuda
