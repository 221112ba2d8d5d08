#include "spool/planner/report/step_json.h"

#include <nlohmann/json.hpp>

namespace spool {

using nlohmann::json;

namespace {

json value_json(const MemoryValue& value) {
  return {{"name", value.name},         {"layer", value.layer < 0 ? json() : json(value.layer)},
          {"category", value.category}, {"bytes", value.bytes},
          {"begin", value.begin},       {"end", value.end},
          {"until", value.until}};
}

}  // namespace

json memory_json(const StepMemory& memory, const std::vector<StepPhase>& phases) {
  json values = json::array(), parts = json::array();
  for (const MemoryValue& value : memory.values) values.push_back(value_json(value));
  for (const StepPhase& phase : phases) {
    parts.push_back({{"name", phase.name}, {"begin_ms", phase.begin}, {"end_ms", phase.end}});
  }
  return {{"categories", memory.categories}, {"times_ms", memory.times},
          {"bytes", memory.bytes},           {"total_bytes", memory.total},
          {"peak_index", memory.peak},       {"phases", std::move(parts)},
          {"values", std::move(values)}};
}

json grid_json(const PlanGrid& grid) {
  json cells = json::array();
  for (const std::vector<GridCell>& row : grid.cells) {
    json names = json::array();
    for (const GridCell cell : row) names.push_back(name(cell));
    cells.push_back(std::move(names));
  }
  return {{"rows", grid.rows}, {"layers", grid.layers}, {"cells", std::move(cells)}};
}

json lanes_json(const std::vector<LaneCopy>& copies) {
  json all = json::array();
  for (const LaneCopy& copy : copies) {
    all.push_back({{"lane", name(copy.lane)},
                   {"name", copy.name},
                   {"begin_ms", copy.begin},
                   {"end_ms", copy.end},
                   {"bytes", copy.bytes}});
  }
  return all;
}

json lane_totals_json(const std::vector<LaneTotal>& totals) {
  json all = json::array();
  for (const LaneTotal& total : totals) {
    all.push_back({{"lane", name(total.lane)},
                   {"copies", total.copies},
                   {"bytes", total.bytes},
                   {"busy_ms", total.busy}});
  }
  return all;
}

}  // namespace spool
