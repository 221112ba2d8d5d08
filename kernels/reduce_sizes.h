// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Division of sums over all elements: each piece of a tensor has a partial sum in the workspace,
// and these are added up in order.

#include <cstdint>

namespace spool::cpu {
constexpr int64_t sum_piece = 65536;  // elements
}

namespace spool::cuda {
constexpr int64_t sum_piece = 16384;  // elements, the work of a block
}
