#include "spool/planner/report/plan_grid.h"

#include <algorithm>

namespace spool {
namespace {

class Cells {
 public:
  Cells(const Program& program, const Plan& plan)
      : program_(program), plan_(plan), savers_(program.values.size()) {
    for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
      for (const ValueId v : program.nodes[n].saves) savers_[v].push_back(n);
    }
  }

  // What happens to the node's saved outputs: the strongest treatment of any of them.
  GridCell of(NodeId n) const {
    GridCell cell = GridCell::none;
    for (const ValueId v : program_.nodes[n].outputs) {
      if (!savers_[v].empty()) cell = std::max(cell, of_value(v));
    }
    return cell;
  }

 private:
  GridCell of_value(ValueId v) const {
    const NodeId producer = program_.values[v].producer;
    for (const Region& region : plan_.regions) {
      if (producer < region.first || producer > region.last || is_read_outside(v, region)) continue;
      return region.chunks > 1 ? GridCell::chunked : GridCell::recompute;
    }
    switch (placement_of(plan_, v)) {
      case Placement::keep:
        return GridCell::keep;
      case Placement::recompute:
        return GridCell::recompute;
      case Placement::offload:
        break;
    }
    const bool to_disk = offload_of(plan_, v).target == OffloadTarget::disk;
    return to_disk ? GridCell::disk : GridCell::host;
  }

  // Whether backward reads the value for a node outside of the region, or a later node reads it and
  // may be recomputed from it.
  bool is_read_outside(ValueId v, const Region& region) const {
    const auto is_outside = [&](NodeId n) { return n < region.first || n > region.last; };
    if (region.chunks > 1) return std::ranges::binary_search(region.leaves, v);
    return std::ranges::any_of(savers_[v], is_outside);
  }

  const Program& program_;
  const Plan& plan_;
  IdTable<ValueId, std::vector<NodeId>> savers_;
};

// The row of this name; a new one is inserted after row `after`.
size_t row_of(PlanGrid& grid, const std::string& name, size_t after) {
  const auto at = std::ranges::find(grid.rows, name);
  if (at != grid.rows.end()) return static_cast<size_t>(at - grid.rows.begin());
  const auto place = static_cast<std::ptrdiff_t>(std::min(after, grid.rows.size()));
  grid.rows.insert(grid.rows.begin() + place, name);
  grid.cells.insert(grid.cells.begin() + place,
                    std::vector<GridCell>(static_cast<size_t>(grid.layers), GridCell::none));
  return static_cast<size_t>(place);
}

}  // namespace

PlanGrid plan_grid(const Program& kept, const NamedNodes& nodes, const Plan& plan) {
  const Cells cells(kept, plan);
  PlanGrid grid{.layers = nodes.layer_count};
  size_t next = 0;
  for (NodeId n = 0; n < kept.nodes.next_id(); ++n) {
    const int layer = nodes.layers[n];
    if (n == 0 || nodes.layers[n - 1] != layer) next = 0;
    const GridCell cell = layer < 0 ? GridCell::none : cells.of(n);
    if (cell == GridCell::none) continue;
    const size_t row = row_of(grid, nodes.names[n], next);
    grid.cells[row][static_cast<size_t>(layer)] = cell;
    next = row + 1;
  }
  return grid;
}

}  // namespace spool
