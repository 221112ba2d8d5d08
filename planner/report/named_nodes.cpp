#include "spool/planner/report/named_nodes.h"

#include <algorithm>
#include <charconv>

#include "spool/planner/report/explanation.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The node's name, and those of the parameters that it reads.
std::string words_of(const Program& program, const Node& node, const std::string& name) {
  std::string words = name;
  for (const ValueId v : node.inputs) {
    const Parameter* parameter = program.values[v].trains;
    if (parameter) words.append(" ").append(parameter->name.c_str());
  }
  return words;
}

NodeKind kind_of(const Node& node, std::string_view words) {
  const std::string_view op = node.op->name();
  switch (node.op->kind()) {
    case OpKind::norm:
      return NodeKind::norm;
    case OpKind::attention:
      return NodeKind::attention;
    case OpKind::activation:
      return NodeKind::mlp;
    case OpKind::product:
    case OpKind::gather:
    case OpKind::move:
    case OpKind::other:
      break;
  }
  if (has(words, "attn") || has(words, "attention") || op == "rope") return NodeKind::attention;
  if (has(words, "mlp")) return NodeKind::mlp;
  if (has(op, "embed")) return NodeKind::embedding;
  if (op == "add") return NodeKind::residual;
  return node.op->kind() == OpKind::product ? NodeKind::product : NodeKind::other;
}

// The first node after the layers that is not a norm; without layers, the last node.
NodeId first_of_loss(const Program& program, const IdTable<NodeId, int>& layers) {
  const NodeId end = program.nodes.next_id();
  NodeId first = end;
  while (first > 0 && layers[first - 1] < 0) --first;
  if (first == 0) return std::max(end - 1, 0);
  while (first < end && program.nodes[first].op->kind() == OpKind::norm) ++first;
  return first;
}

}  // namespace

NamedNodes named_nodes(const Program& program) {
  NamedNodes nodes{.names = node_names(program), .layers = layer_numbers(program)};
  nodes.loss = first_of_loss(program, nodes.layers);
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    const Node& node = program.nodes[n];
    const bool is_loss = n >= nodes.loss;
    nodes.kinds.push_back(is_loss ? NodeKind::loss
                                  : kind_of(node, words_of(program, node, nodes.names[n])));
    nodes.layer_count = std::max(nodes.layer_count, nodes.layers[n] + 1);
  }
  return nodes;
}

std::string in_words(const NamedNodes& nodes, NodeId n) {
  if (nodes.layers[n] < 0) return nodes.names[n];
  return sentence(nodes.names[n], " of layer ", nodes.layers[n]);
}

LayerName layer_name(std::string_view parameter) {
  for (size_t at = 0; at < parameter.size();) {
    const size_t dot = std::min(parameter.find('.', at), parameter.size());
    int layer = 0;
    const char* const end = parameter.data() + dot;
    const auto [stop, error] = std::from_chars(parameter.data() + at, end, layer);
    const bool is_layer = error == std::errc() && stop == end && dot < parameter.size();
    if (is_layer) return {std::string(parameter.substr(dot + 1)), layer};
    at = dot + 1;
  }
  return {std::string(parameter)};
}

}  // namespace spool
