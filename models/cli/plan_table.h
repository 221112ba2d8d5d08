#pragma once

// What was planned, as tables for people.

#include <string>
#include <string_view>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// The model, what is kept where, the parts of the foretold peak, the number of threads that it
// holds for on a cpu, the budget, the step time and how far from the best it may be.
std::string plan_table(const RunOptions&, const Machine&, const PlannedRun&);

// A table with the lines of the foretold peak and step time in bold, for that descriptor.
std::string emphasised(std::string_view table, int descriptor);

// Budget, peak and step time of each plan, a line each.
std::string frontier_table(const std::vector<PlannedSteps>&);

}  // namespace spool
