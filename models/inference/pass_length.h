#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace spool {

// The number of a generator's unread tokens that its next pass reads: a power of two up to 128, so
// that passes have few shapes.
inline int64_t pass_length(int64_t tokens) {
  constexpr int64_t limit = 128;
  return std::min(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))), limit);
}

}  // namespace spool
