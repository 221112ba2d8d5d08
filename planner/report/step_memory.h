#pragma once

// The memory of a device over a rehearsed step, by category, for reports.

#include <string>
#include <vector>

#include "spool/planner/rehearsal.h"
#include "spool/planner/report/named_nodes.h"
#include "spool/planner/report/report_clock.h"

namespace spool {

// An allocation, or the part of its life that it spends in one category.  It is live in the
// instants [begin, end).
struct MemoryValue {
  std::string name = {};  // "ln_2", "mlp.c_fc.weight", "input gradient of ln_2"
  int layer = -1;         // -1: outside of all layers
  size_t category = 0;
  size_t bytes = 0;
  size_t begin = 0, end = 0;
  std::string until = {};  // "backward of mlp.c_fc", "end of the step"
};

struct StepMemory {
  std::vector<std::string> categories = {};  // from the bottom to the top; only those that occur
  // Milliseconds since the step began, not falling.  The bytes of an instant hold until the next.
  // Two instants may have the same time: the first shows a peak that lasted no time.
  std::vector<double> times = {};
  std::vector<std::vector<size_t>> bytes = {};  // of each category, at each instant
  std::vector<size_t> total = {};
  size_t peak = 0;                       // the first instant at which most bytes are live
  std::string peak_is_in = {};           // "backward of mlp.c_fc of layer 7"
  std::vector<MemoryValue> values = {};  // the largest in bytes x time first
};

struct StepMemoryLimits {
  // Maximum number of instants: neighbours merge into the one of most bytes; the peak stays.
  size_t instants = 2000;
  size_t values = 1500;
  double min_part = 1.0 / 2000;  // smaller values than this part of the peak are not listed
};

// The step must have been rehearsed with RehearsalOptions::allocations.
StepMemory step_memory(const RehearsedStep&, const NamedNodes&, const StepMemoryLimits& = {});

}  // namespace spool
