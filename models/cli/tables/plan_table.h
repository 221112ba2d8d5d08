#pragma once

// Prints what was planned as tables for people.

#include <string>
#include <string_view>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// The model, what is kept where, the parts of the foretold peak, the number of threads of a cpu
// that it holds for, the budget, the step time, and how far from the best it may be.
std::string plan_table(const RunOptions&, const Machine&, const PlannedRun&);

// The table with the foretold peak and step time in bold, if the descriptor is a terminal.
std::string emphasised(std::string_view table, int descriptor);

// The foretold time of a step's kernels by name, the longest first.
std::string kernel_times_table(const TrainingConfig&, const StepPlans&, const Machine&);

// Budget, peak and step time of each plan, one line each.
std::string frontier_table(const std::vector<PlannedSteps>&);

}  // namespace spool
