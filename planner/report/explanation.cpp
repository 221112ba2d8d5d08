#include "spool/planner/report/explanation.h"

#include <algorithm>
#include <map>

#include "spool/runtime/check.h"

namespace spool {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

// h.3.mlp.c_fc.weight -> mlp.c_fc
std::string without_layer(std::string_view parameter) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= parameter.size();) {
    const size_t dot = std::min(parameter.find('.', at), parameter.size());
    parts.push_back(parameter.substr(at, dot - at));
    at = dot + 1;
  }
  if (parts.size() > 1 && !is_number(parts[parts.size() - 2])) parts.pop_back();
  size_t first = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (is_number(parts[i])) first = i + 1;
  }
  std::string name(parts[first]);
  for (size_t i = first + 1; i < parts.size(); ++i) name.append(".").append(parts[i]);
  return name;
}

std::string name_of_parameter(const Program& program, const Node& node) {
  for (const ValueId v : node.inputs) {
    const Parameter* parameter = program.values[v].trains;
    if (!parameter) continue;
    const std::string_view name = parameter->name;
    if (node.op->gathers()) return "gather_" + without_layer(name);
    if (!name.ends_with(".bias")) return without_layer(name);
  }
  return node.op->name();
}

// How often each name occurs in each layer.
using NameCounts = std::map<std::pair<int, std::string>, int>;

NameCounts counts_of(const IdTable<NodeId, std::string>& names,
                     const IdTable<NodeId, int>& layers) {
  NameCounts counts;
  for (NodeId n = 0; n < names.next_id(); ++n) ++counts[{layers[n], names[n]}];
  return counts;
}

class Explainer {
 public:
  Explainer(const Program& program, const Plan& plan)
      : program_(program), plan_(plan), names_(node_names(program)) {
    is_saved_ = IdTable<ValueId, bool>(std::vector<bool>(program.values.size(), false));
    for (const Node& node : program.nodes) {
      for (const ValueId v : node.saves) is_saved_[v] = true;
    }
  }

  std::string treatment(const std::vector<NodeId>& nodes) const {
    std::vector<std::string> parts = regions(nodes);
    const auto add = [&](const char* what, const std::string& list) {
      if (!list.empty()) parts.push_back(what + list);
    };
    add("recompute", recomputed(nodes));
    add("to the host:", offloaded(nodes, OffloadTarget::host));
    add("to the disk:", offloaded(nodes, OffloadTarget::disk));
    if (parts.empty()) return "keep all";
    std::string whole = parts.front();
    for (size_t i = 1; i < parts.size(); ++i) whole += "; " + parts[i];
    return whole;
  }

 private:
  // Names the nodes with a saved output for which `holds` is true: " NAME NAME".
  template <class Holds>
  std::string list(const std::vector<NodeId>& nodes, const Holds& holds) const {
    std::string names;
    for (const NodeId n : nodes) {
      for (const ValueId v : program_.nodes[n].outputs) {
        const std::string note = is_saved_[v] ? holds(v) : std::string();
        if (note.empty()) continue;
        names += " " + names_[n] + (note == yes ? "" : note);
        break;
      }
    }
    return names;
  }

  std::string recomputed(const std::vector<NodeId>& nodes) const {
    return list(nodes, [&](ValueId v) {
      return std::string(placement_of(plan_, v) == Placement::recompute ? yes : "");
    });
  }

  std::string offloaded(const std::vector<NodeId>& nodes, OffloadTarget target) const {
    return list(nodes, [&](ValueId v) {
      if (placement_of(plan_, v) != Placement::offload) return std::string();
      const Offload o = offload_of(plan_, v);
      if (o.target != target) return std::string();
      return o.rows < 0 ? std::string(yes)
                        : sentence(" (", o.rows, o.rows == 1 ? " row)" : " rows)");
    });
  }

  std::vector<std::string> regions(const std::vector<NodeId>& nodes) const {
    std::vector<std::string> parts;
    for (const Region& r : plan_.regions) {
      if (!std::ranges::binary_search(nodes, r.first)) continue;
      const bool all = r.first == nodes.front() && r.last == nodes.back();
      const bool is_one = r.first == r.last;
      const std::string what =
          all ? "the whole layer" : names_[r.first] + (is_one ? "" : " to " + names_[r.last]);
      parts.push_back(r.chunks > 1 ? sentence(what, " in ", r.chunks, " chunks")
                                   : sentence("recompute ", what));
    }
    return parts;
  }

  static constexpr const char* yes = "yes";
  const Program& program_;
  const Plan& plan_;
  IdTable<NodeId, std::string> names_;
  IdTable<ValueId, bool> is_saved_;
};

void add_layer(std::vector<LayerGroup>& groups, int layer, const std::string& treatment) {
  auto group = std::ranges::find(groups, treatment, &LayerGroup::treatment);
  if (group == groups.end()) group = groups.insert(group, {.treatment = treatment});
  group->add(layer);
}

}  // namespace

void LayerGroup::add(int layer) {
  if (!layers.empty() && layers.back().second + 1 == layer) {
    layers.back().second = layer;
  } else {
    layers.emplace_back(layer, layer);
  }
}

IdTable<NodeId, int> layer_numbers(const Program& program) {
  IdTable<NodeId, int> numbers(std::vector<int>(program.nodes.size(), -1));
  int layer = 0;
  for (const TapeScope& block : blocks_of(program)) {
    for (NodeId n = block.first; n <= block.last; ++n) numbers[n] = layer;
    ++layer;
  }
  return numbers;
}

IdTable<NodeId, std::string> node_names(const Program& program) {
  const IdTable<NodeId, int> layers = layer_numbers(program);
  IdTable<NodeId, std::string> names;
  for (const Node& node : program.nodes) names.push_back(name_of_parameter(program, node));
  // A parameter that several nodes read, such as a shared embedding, names none of them.
  const NameCounts by_parameter = counts_of(names, layers);
  for (NodeId n = 0; n < names.next_id(); ++n) {
    if (by_parameter.at({layers[n], names[n]}) > 1) names[n] = program.nodes[n].op->name();
  }
  const NameCounts by_op = counts_of(names, layers);
  NameCounts seen;
  for (NodeId n = 0; n < names.next_id(); ++n) {
    const std::pair key(layers[n], names[n]);
    if (by_op.at(key) > 1) names[n] += sentence("_", ++seen[key]);
  }
  return names;
}

std::vector<LayerGroup> explain(const Program& kept, const Plan& plan) {
  const Explainer explainer(kept, plan);
  const IdTable<NodeId, int> layers = layer_numbers(kept);
  std::map<int, std::vector<NodeId>> nodes;
  for (NodeId n = 0; n < layers.next_id(); ++n) nodes[layers[n]].push_back(n);
  std::vector<LayerGroup> groups;
  for (const auto& [layer, of_layer] : nodes) {
    if (layer >= 0) add_layer(groups, layer, explainer.treatment(of_layer));
  }
  const std::string outside = nodes.contains(-1) ? explainer.treatment(nodes.at(-1)) : "keep all";
  if (outside != "keep all" || groups.empty()) groups.push_back({.treatment = outside});
  return groups;
}

std::string layers_of(const LayerGroup& group) {
  if (group.layers.empty()) return "outside the layers";
  const bool is_one = group.layers.size() == 1 && group.layers[0].first == group.layers[0].second;
  std::string text = is_one ? "layer " : "layers ";
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const auto [first, last] = group.layers[i];
    text += sentence(i ? ", " : "", first);
    if (last > first) text += sentence("–", last);
  }
  return text;
}

}  // namespace spool
