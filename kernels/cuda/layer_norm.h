#pragma once

// How the backward pass of layer normalisation is shared on cuda: groups of rows, by their number
// alone, each with partial sums of dweight and dbias in the workspace, one after the other.

#include <algorithm>
#include <cstdint>

namespace spool::cuda {

struct LayerNormGroups {
  int64_t rows = 1, count = 0;

  explicit LayerNormGroups(int64_t N) {
    // Several blocks for each multiprocessor of a large device, of whole steps of four rows.
    constexpr int64_t most = 768, fewest_rows = 8, step = 4;
    rows = std::max(((N + most - 1) / most + step - 1) / step * step, fewest_rows);
    count = (N + rows - 1) / rows;
  }
};

}  // namespace spool::cuda
