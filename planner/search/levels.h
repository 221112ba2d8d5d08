#pragma once

// A ladder of budgets, the same for every step: its levels are the powers of a ratio, in bytes.

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "spool/runtime/meta/stream.h"

namespace spool {

inline constexpr double level_ratio = 1.002;

inline size_t level_bytes(int level) {
  const auto bytes = static_cast<size_t>(std::pow(level_ratio, level));
  return bytes / Arena::granule * Arena::granule;
}

// The highest level within the budget.
inline int level_within(size_t budget) {
  budget = std::clamp<size_t>(budget, 1, MetaStream::unlimited);
  auto level = static_cast<int>(std::log(static_cast<double>(budget)) / std::log(level_ratio));
  while (level_bytes(level + 1) <= budget) ++level;
  while (level > 0 && level_bytes(level) > budget) --level;
  return level;
}

}  // namespace spool
