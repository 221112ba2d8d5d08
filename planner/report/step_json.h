// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The parts of a plan's report that a step's rehearsal tells, as JSON;
// models/training/plan_report.h says what is in them.

#include <nlohmann/json_fwd.hpp>

#include "spool/planner/report/copy_lanes.h"
#include "spool/planner/report/plan_grid.h"
#include "spool/planner/report/step_memory.h"

namespace spool {

nlohmann::json memory_json(const StepMemory&, const std::vector<StepPhase>&);
nlohmann::json grid_json(const PlanGrid&);
nlohmann::json lanes_json(const std::vector<LaneCopy>&);
nlohmann::json lane_totals_json(const std::vector<LaneTotal>&);

}  // namespace spool
