#pragma once

// Lists the copies of a rehearsed step between the device and its host or disk, for reports.

#include <string>
#include <utility>
#include <vector>

#include "spool/planner/rehearsal.h"
#include "spool/planner/report/named_nodes.h"

namespace spool {

struct LaneCopy {
  TraceLane lane = TraceLane::copy_out;
  std::string name = {};      // "ln_1 of layer 3", "parameters in"; "gradients" of an exchange
  double begin = 0, end = 0;  // milliseconds since the step began
  size_t bytes = 0;
  // Of an exchange: when nothing hid it, begins and ends.
  std::vector<std::pair<double, double>> exposed = {};
};

// Sums over all copies of a lane.
struct LaneTotal {
  TraceLane lane = TraceLane::copy_out;
  size_t copies = 0, bytes = 0;
  double busy = 0;     // milliseconds
  double exposed = 0;  // of exchanges: milliseconds of them
};

struct CopyLanes {
  std::vector<LaneTotal> totals = {};  // of lanes with copies
  std::vector<LaneCopy> copies = {};   // by begin; the longest ones, if there are too many
};

// The step must have been rehearsed with RehearsalOptions::allocations.
CopyLanes copy_lanes(const RehearsedStep&, const NamedNodes&, size_t max_copies = 2000);

}  // namespace spool
