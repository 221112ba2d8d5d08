#include "spool/autograd/sharding/part_place.h"

#include "spool/runtime/check.h"

namespace spool {
namespace {

// This rank's part of an index that some axes cut, of which the earlier one is the outer.
PartOfIndex part_of(char index, const WholeOp& op, const Strategy& s, const MeshAxes& mesh,
                    const std::vector<int>& coordinates) {
  PartOfIndex part{.index = index};
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (s.axes[a].index != index) continue;
    part.number = part.number * mesh[a] + coordinates[a];
    part.of *= mesh[a];
  }
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Term& term = op.notation.input(i);
    if (!term.carries(index)) continue;
    part.extent = term.extent(index, op.inputs[i].spec.shape);
    part.range = {part.extent * part.number / part.of, part.extent * (part.number + 1) / part.of};
    return part;
  }
  fail(ErrorKind::invalid, "no input has the index ", index);
}

}  // namespace

Place part_place(NodeId node, const WholeOp& op, const Strategy& s, const MeshAxes& mesh,
                 const std::vector<int>& coordinates, PartExchange* exchange) {
  Place place{.node = node, .exchange = exchange};
  for (size_t a = 0; a < mesh.size(); ++a) {
    const char index = s.axes[a].index;
    if (index == ' ' || place.part(index)) continue;
    const PartOfIndex part = part_of(index, op, s, mesh, coordinates);
    if (part.of > 1) place.parts.push_back(part);  // a single part is the whole
  }
  for (size_t i = 0; i < op.inputs.size() && !place.parts.empty(); ++i) {
    if (op.notation.input(i).first() != place.parts[0].index) continue;
    place.leading = op.inputs[i].spec.shape[0];
    break;
  }
  return place;
}

Specs part_specs(const std::vector<WholeValue>& whole, const std::vector<Sharding>& shardings,
                 const MeshAxes& mesh) {
  Specs specs;
  for (size_t i = 0; i < whole.size(); ++i) {
    specs.push_back(local_spec(whole[i], shardings[i], mesh));
  }
  return specs;
}

}  // namespace spool
