// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// What a run takes under many budgets, and under policies that people set by hand.

#include <vector>

#include "spool/models/training/run_search.h"

namespace spool {

struct Frontier {
  std::vector<PlannedRun> points = {};     // by rising budget
  std::vector<PolicyPoint> policies = {};  // if asked for; the first keeps all
};

// Plans for budgets from the smallest to that of keeping everything, evenly spread; no policies.
Frontier find_frontier(RunSearch&);

}  // namespace spool
