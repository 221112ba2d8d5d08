#pragma once

// Describes a plan in sentences, for reports.

#include <string>
#include <string_view>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/planner/report/step_memory.h"

namespace spool {

struct PlanInWords {
  const PlannedRun& run;
  const Machine& machine;
  const std::string& model;               // its name in the settings
  const std::vector<LayerGroup>& layers;  // from explain()
  const RehearsedStep& step;              // with its trace
  const StepMemory& memory;               // of that step
  std::string_view peak_is_in;            // of the run: "step", "evaluation" or "sample"
  const Frontier& frontier;               // may be empty; shows what a larger budget would buy
};

std::vector<std::string> plan_in_words(const PlanInWords&);

// The numbers of threads for which chunks hold that were chosen for `threads`: "up to 4 threads".
std::string chunk_threads(int threads);

}  // namespace spool
