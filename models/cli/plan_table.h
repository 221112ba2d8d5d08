#pragma once

// What was planned, as tables for people.

#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// The model, what is kept where, the parts of the foretold peak, the number of threads that it
// holds for on a cpu, the budget, the step time and how far from the best it may be.
std::string plan_table(const RunOptions&, const Machine&, const PlannedRun&);

// Budget, peak and step time of each plan, a line each.
std::string frontier_table(const std::vector<PlannedRun>&);

}  // namespace spool
