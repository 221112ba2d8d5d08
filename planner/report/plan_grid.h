#pragma once

// A plan as a grid: a row for each name of a node, a column for each layer, and in each cell what
// the plan does to the node's values.

#include <string>
#include <vector>

#include "spool/planner/report/named_nodes.h"

namespace spool {

// `none`: backward reads no output of such a node in this layer.
enum class GridCell : uint8_t { none, keep, recompute, host, disk, chunked };
template <>
inline constexpr std::array enumerator_names<GridCell>{"",     "keep", "recompute",
                                                       "host", "disk", "chunked"};

struct PlanGrid {
  std::vector<std::string> rows = {};  // names of nodes, in the order of a layer
  int layers = 0;
  std::vector<std::vector<GridCell>> cells = {};  // by row, then layer
};

// `kept` is the program of a tape that keeps every value.
PlanGrid plan_grid(const Program& kept, const NamedNodes&, const Plan&);

}  // namespace spool
