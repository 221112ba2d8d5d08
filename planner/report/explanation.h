// Public: one of the headers of docs/public-headers.md.
#pragma once

// Explains a plan to people, layer by layer.  A layer is a block of the program, an outermost
// scope; layers that a plan treats alike are told of together: "layers 0–13: recompute ln_1 gelu".

#include <string>
#include <utility>
#include <vector>

#include "spool/autograd/program.h"

namespace spool {

// A name for what each node computes: that of the layer's first parameter that it reads, without
// the layer's number (h.3.mlp.c_fc.weight: mlp.c_fc), or that of its op; a bias names none.  Nodes
// of a layer with equal names are numbered: add_1, add_2.  The program's parameters must still
// exist.
IdTable<NodeId, std::string> node_names(const Program&);

// The layer of each node, counted from 0; -1: outside of all layers.
IdTable<NodeId, int> layer_numbers(const Program&);

// Layers that a plan treats alike.
struct LayerGroup {
  std::vector<std::pair<int, int>> layers = {};  // ranges, first and last; none: outside all layers
  std::string treatment = {};                    // "recompute ln_1 gelu", "keep all"
  bool operator==(const LayerGroup&) const = default;
};

// What the plan does, by rising first layer; what is outside of all layers comes last, and only if
// it is not just kept.  `kept` is the program of a tape that keeps every value.  Its parameters
// must still exist.
std::vector<LayerGroup> explain(const Program& kept, const Plan&);

// "layers 0–13, 20", or "outside the layers".
std::string layers_of(const LayerGroup&);

}  // namespace spool
