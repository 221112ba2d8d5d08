// Public: one of the headers of docs/public-headers.md.
#pragma once

// Explains a plan to people, layer by layer.  A layer is an outermost scope of the program; layers
// that a plan treats alike are described together: "layers 0–13: recompute ln_1 gelu".

#include <string>
#include <utility>
#include <vector>

#include "spool/autograd/program.h"

namespace spool {

// Names each node after the first parameter of its layer that it reads, without the layer's number
// (h.3.mlp.c_fc.weight: mlp.c_fc), or after its op if it reads none or only a bias.  Nodes of a
// layer with equal names are numbered: add_1, add_2.  The program's parameters must still exist.
IdTable<NodeId, std::string> node_names(const Program&);

// The layer of each node, counted from 0; -1: outside of all layers.
IdTable<NodeId, int> layer_numbers(const Program&);

// Layers that a plan treats alike.
struct LayerGroup {
  std::vector<std::pair<int, int>> layers = {};  // ranges, first and last; none: outside all layers
  std::string treatment = {};                    // "recompute ln_1 gelu", "keep all"
  void add(int layer);                           // one behind all others
  bool operator==(const LayerGroup&) const = default;
};

// Groups layers by what the plan does to them, by rising first layer.  What is outside of all
// layers comes last, and only if something is done to it.  `kept` is the program of a tape that
// keeps every value; its parameters must still exist.
std::vector<LayerGroup> explain(const Program& kept, const Plan&);

// "layers 0–13, 20", or "outside the layers".
std::string layers_of(const LayerGroup&);

}  // namespace spool
