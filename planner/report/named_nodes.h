#pragma once

// Names the nodes of a program for people, and sorts them into kinds.

#include <string>
#include <string_view>

#include "spool/autograd/program.h"

namespace spool {

// What a node is a part of; reports group activations by it.
enum class NodeKind : uint8_t { embedding, attention, mlp, norm, residual, product, loss, other };
template <>
inline constexpr std::array enumerator_names<NodeKind>{"embedding", "attention", "mlp",  "norms",
                                                       "residual",  "products",  "loss", "other"};

struct NamedNodes {
  IdTable<NodeId, std::string> names = {};  // as node_names()
  IdTable<NodeId, int> layers = {};         // as layer_numbers()
  IdTable<NodeId, NodeKind> kinds = {};
  int layer_count = 0;
  NodeId loss = 0;  // the first node of the loss: after all layers, and no norm
};

// The program's parameters must exist during the call only.
NamedNodes named_nodes(const Program&);

// "mlp.c_fc of layer 3", or "wte" outside of all layers.
std::string in_words(const NamedNodes&, NodeId);

// "h.3.mlp.c_fc.weight" is "mlp.c_fc.weight" of layer 3; a name without a number is of layer -1,
// none.
struct LayerName {
  std::string name = {};
  int layer = -1;
};
LayerName layer_name(std::string_view parameter);

}  // namespace spool
