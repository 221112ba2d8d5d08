#pragma once

// Division of sums over all elements: SumAll has a partial sum for each piece of a tensor in its
// workspace, and adds these up in order.

#include <cstdint>

namespace spool::cpu {
constexpr int64_t sum_piece = 65536;  // elements
}

namespace spool::cuda {
constexpr int64_t sum_piece = 16384;  // elements, the work of a block
}
