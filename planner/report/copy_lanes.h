// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The copies of a rehearsed step between the device and its host or disk, for reports.

#include <string>
#include <vector>

#include "spool/planner/rehearsal.h"
#include "spool/planner/report/named_nodes.h"

namespace spool {

struct LaneCopy {
  TraceLane lane = TraceLane::copy_out;
  std::string name = {};      // "ln_1 of layer 3", "optimizer state"
  double begin = 0, end = 0;  // milliseconds since the step began
  size_t bytes = 0;
};

// Of a step that was rehearsed with AskedOfRehearsal::allocations; by begin.  Of more than `most`,
// those that take longest.
std::vector<LaneCopy> lane_copies(const RehearsedStep&, const NamedNodes&, size_t most = 2000);

}  // namespace spool
