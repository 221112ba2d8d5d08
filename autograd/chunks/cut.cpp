#include "spool/autograd/chunks/cut.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "spool/autograd/notation/notation.h"

namespace spool {
namespace {

// An input or an output of a node, and its term of the op's notation; null: it is not mentioned.
struct Role {
  ValueId value = -1;
  size_t slot = 0;  // of the value, among those of the span
  const Term* term = nullptr;
  bool is_output = false;
  // The index that leads it, of which rows are a piece of memory: the dimension has no parts.
  char first = '\0';

  bool is_led() const { return is_separable(first); }
};

struct NodeRoles {
  NodeId id = -1;
  Notation notation = {};
  std::vector<Role> roles = {};
};

using Marks = std::vector<char>;  // of the values of a span, by slot

// Nodes one after another, and the values that they read and compute.
class Span {
 public:
  Span(const Program& program, NodeId first, NodeId last) {
    nodes_.reserve(static_cast<size_t>(last - first) + 1);  // roles point into them
    for (NodeId id = first; id <= last; ++id) {
      const Node& n = program.nodes[id];
      NodeRoles& node = nodes_.emplace_back();
      node.id = id;
      node.notation = parse_notation(n.op->indices());
      node.roles.reserve(n.inputs.size() + n.outputs.size());
      add(n.inputs, node.notation.inputs, /*is_output=*/false, node.roles);
      add(n.outputs, node.notation.outputs, /*is_output=*/true, node.roles);
    }
  }

  const std::vector<NodeRoles>& nodes() const { return nodes_; }
  Marks no_marks() const { return Marks(slots_.size(), false); }

 private:
  void add(const Few<ValueId>& values, const std::vector<Term>& terms, bool is_output,
           std::vector<Role>& roles) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Term* const term = i < terms.size() ? &terms[i] : nullptr;
      roles.push_back({.value = values[i],
                       .slot = slots_.try_emplace(values[i], slots_.size()).first->second,
                       .term = term,
                       .is_output = is_output,
                       .first = term && term->is_plain(term->first()) ? term->first() : '\0'});
    }
  }

  std::vector<NodeRoles> nodes_ = {};
  std::unordered_map<ValueId, size_t> slots_ = {};
};

// The number of leading dimensions whose product is the extent; none if there is no such number.
std::optional<int> dimensions_of(const Shape& shape, int64_t extent) {
  int64_t n = 1;
  for (int k = 0; k < shape.rank(); ++k) {
    n *= shape[k];
    if (n == extent) return k + 1;
  }
  return std::nullopt;
}

bool divides(int64_t extent, const Shape& shape) {
  return dimensions_of(shape, extent) || (shape.rank() > 0 && shape[0] % extent == 0);
}

// An index of the span: the values that it leads, and what follows from that.
class Index {
 public:
  Index(const Program& program, const Span& span, const Role& seed)
      : program_(program),
        nodes_(span.nodes()),
        led_(span.no_marks()),
        sums_(span.no_marks()),
        inputs_(span.no_marks()) {
    lead(seed);
    for (size_t before = 0; before != cut_.carried.size();) {
      before = cut_.carried.size();
      for (const NodeRoles& node : nodes_) spread(node);
    }
    for (const NodeRoles& node : nodes_) add(node);
    check_extent();
    for (const NodeRoles& node : nodes_) check_sums(node);
  }

  bool leads(const Role& r) const { return led_[r.slot]; }
  bool is_legal() const { return cut_.obstacle.empty(); }
  int64_t computed_elements() const { return elements_; }

  Cut take_cut() && {
    std::ranges::sort(cut_.carried);
    return std::move(cut_);
  }

 private:
  void lead(const Role& r) {
    if (!std::exchange(led_[r.slot], true)) cut_.carried.push_back(r.value);
  }

  // Adds the values that share the index with one that it leads, at this node.
  void spread(const NodeRoles& node) {
    for (const Role& known : node.roles) {
      if (!leads(known) || !known.is_led()) continue;
      for (const Role& r : node.roles) {
        const bool is_parameter = program_.values[r.value].parameter != nullptr;
        if (r.first == known.first && !is_parameter) lead(r);
      }
    }
  }

  template <class... Words>
  void refuse(const NodeRoles& node, const Words&... why) {
    if (!is_legal()) return;
    cut_.obstacle = sentence(program_.nodes[node.id].op->name(), " (node ", node.id, ") ", why...);
  }

  void add(const NodeRoles& node) {
    char letter = '\0';
    IndexOfNode leading;
    for (const Role& r : node.roles) {
      if (!leads(r)) continue;
      const Spec& spec = program_.values[r.value].spec;
      if (!r.is_led()) return refuse(node, "looks along the index: it needs ", spec, " whole");
      if (letter && letter != r.first) return refuse(node, "has the index twice");
      const int64_t extent = r.term->extent(r.first, spec.shape);
      if (!letter) leading = {r.first, extent, spec.shape.rank() ? spec.shape[0] : 1};
      letter = r.first;
      add_extent(extent);
    }
    if (!letter) return;
    cut_.nodes.push_back(node.id);
    cut_.indices.push_back(leading);
    if (!program_.nodes[node.id].op->recomputable()) {
      return refuse(node, "has an effect beyond its outputs, so it must run once, and whole");
    }
    if (node.notation.is_joined(letter)) {
      return refuse(node, "has parts along the index that need each other's numbers");
    }
    for (const Role& r : node.roles) add_role(node, r, letter);
  }

  void add_role(const NodeRoles& node, const Role& r, char letter) {
    const Value& value = program_.values[r.value];
    const size_t at = r.term ? r.term->indices.find(letter) : std::string::npos;
    if (at != std::string::npos && !leads(r)) {
      if (at > 0) return refuse(node, "has the index inside of ", value.spec, ", not in front");
      if (!r.is_led()) return refuse(node, "has parts of ", value.spec, " along the index");
      return refuse(node, "has the index in a parameter, ", value.spec);
    }
    const bool is_added = r.term && r.term->is_added && at == std::string::npos;
    if (is_added && !node.notation.output(0).carries(letter)) {
      return refuse(node, "adds ", value.spec, " once to a sum over the index");
    }
    if (!r.is_output) {
      computed_outside(r);
    } else if (at == std::string::npos) {
      sums_[r.slot] = true;
    } else {
      elements_ += value.spec.shape.numel();
    }
  }

  // Adds an input of the cut, unless one of the nodes that are cut computes it.
  void computed_outside(const Role& r) {
    const bool inside = std::ranges::binary_search(cut_.nodes, program_.values[r.value].producer);
    if (!inside && !std::exchange(inputs_[r.slot], true)) cut_.inputs.push_back(r.value);
  }

  void add_extent(int64_t extent) {
    cut_.extent = has_extent_ ? std::min(cut_.extent, extent) : extent;
    has_extent_ = true;
  }

  bool all_divide(int64_t extent) const {
    return std::ranges::all_of(
        cut_.carried, [&](ValueId v) { return divides(extent, program_.values[v].spec.shape); });
  }
  // The smallest first dimension of all values, if they divide into as many parts; else the extent.
  int64_t rows_of_all() const {
    int64_t rows = cut_.extent;
    for (const ValueId v : cut_.carried) {
      const Shape& shape = program_.values[v].spec.shape;
      if (shape.rank() > 0) rows = std::min(rows, shape[0]);
    }
    return rows > 1 && all_divide(rows) ? rows : cut_.extent;
  }

  void check_extent() {
    if (!is_legal()) return;
    if (cut_.extent > 1 && !all_divide(cut_.extent)) cut_.extent = rows_of_all();
    if (cut_.extent < 2) {
      cut_.obstacle = sentence("its index has an extent of ", cut_.extent);
      return;
    }
    for (const NodeRoles& node : nodes_) {
      for (const Role& r : node.roles) {
        const Spec& spec = program_.values[r.value].spec;
        if (!leads(r) || divides(cut_.extent, spec.shape)) continue;
        refuse(node, "has ", spec, ", which does not divide into the ", cut_.extent,
               " of the others");
      }
    }
  }

  void check_sums(const NodeRoles& node) {
    for (const Role& r : node.roles) {
      if (r.is_output || !sums_[r.slot]) continue;
      refuse(node, "reads the sum ", program_.values[r.value].spec, " of ",
             program_.producer_name(r.value), ", which is complete only after the last chunk");
    }
  }

  const Program& program_;
  const std::vector<NodeRoles>& nodes_;
  Marks led_, sums_, inputs_;
  int64_t elements_ = 0;  // of computed values that it leads
  bool has_extent_ = false;
  Cut cut_ = {};
};

}  // namespace

bool Cut::carries(ValueId v) const { return std::ranges::binary_search(carried, v); }

bool Cut::has(NodeId n) const { return std::ranges::binary_search(nodes, n); }

Cut cut(const Program& program, NodeId first, NodeId last) {
  check(0 <= first && first <= last && last < program.nodes.next_id(), "cut: nodes ", first, " to ",
        last, " of a tape of ", program.nodes.size());
  const Span span(program, first, last);
  std::optional<Index> best;
  Marks known = span.no_marks();
  const auto is_better = [&](const Index& other) {
    if (!best) return true;
    if (other.is_legal() != best->is_legal()) return other.is_legal();
    return other.computed_elements() > best->computed_elements();
  };
  for (const NodeRoles& node : span.nodes()) {
    for (const Role& r : node.roles) {
      if (!r.is_led() || program.values[r.value].parameter || known[r.slot]) continue;
      Index index(program, span, r);
      for (const NodeRoles& n : span.nodes()) {
        for (const Role& other : n.roles) {
          if (index.leads(other)) known[other.slot] = true;
        }
      }
      if (is_better(index)) best.emplace(std::move(index));
    }
  }
  if (!best) return {.obstacle = "none of its ops has an index that leads its values"};
  return std::move(*best).take_cut();
}

std::vector<ValueId> find_leaves(const Program& program, NodeId first, NodeId last) {
  std::vector<ValueId> leaves;
  for (NodeId n = first; n <= last; ++n) {
    for (const ValueId v : program.nodes[n].outputs) {
      if (program.values[v].is_observed) leaves.push_back(v);
    }
  }
  for (NodeId n = last + 1; n < program.nodes.next_id(); ++n) {
    for (const ValueId v : program.nodes[n].inputs) {
      const NodeId producer = program.values[v].producer;
      if (first <= producer && producer <= last) leaves.push_back(v);
    }
  }
  std::ranges::sort(leaves);
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  return leaves;
}

Shape part(const Shape& whole, int64_t extent, int64_t rows) {
  const std::optional<int> dims = dimensions_of(whole, extent);
  if (!dims) {
    check(whole.rank() > 0 && whole[0] % extent == 0, "a part of ", whole,
          " was asked for, along an index of ", extent);
    return whole.with(0, whole[0] / extent * rows);
  }
  switch (whole.rank() - *dims) {
    case 0:
      return {rows};
    case 1:
      return {rows, whole[-1]};
    case 2:
      return {rows, whole[-2], whole[-1]};
    default:
      return {rows, whole[-3], whole[-2], whole[-1]};
  }
}

Tensor part(const Tensor& whole, int64_t extent, Range rows) {
  if (!whole) return {};
  const Shape shape = part(whole.shape(), extent, rows.size());
  return whole.reshape({extent, whole.numel() / extent}).slice(rows).reshape(shape);
}

View part(const View& whole, int64_t extent, Range rows) {
  const size_t row = whole.nbytes() / static_cast<size_t>(extent);
  return {whole.data() + static_cast<size_t>(rows.begin) * row,
          {part(whole.shape(), extent, rows.size()), whole.dtype()}};
}

}  // namespace spool
