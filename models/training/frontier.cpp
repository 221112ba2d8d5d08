#include "spool/models/training/frontier.h"

#include <algorithm>

namespace spool {

Frontier find_frontier(RunSearch& search) {
  constexpr size_t steps = 20;
  const size_t least = search.smallest_budget();
  const size_t most = std::max(search.keep_all_peak(), least);
  Frontier frontier;
  for (size_t i = 0; i <= steps; ++i) {
    const size_t budget = least + (most - least) / steps * i;
    frontier.points.push_back(search.plan(i == steps ? most : budget));
  }
  return frontier;
}

}  // namespace spool
