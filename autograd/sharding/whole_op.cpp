#include "spool/autograd/sharding/whole_op.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace spool {
namespace {

// The dimensions of several values, in classes of those that are equal, by union and find.
// [Tarjan, "Efficiency of a good but not linear set union algorithm", 1975]
class EqualDimensions {
 public:
  int add(const Shape& shape) {
    const int first = static_cast<int>(parent_.size());
    for (int d = 0; d < shape.rank(); ++d) {
      parent_.push_back(first + d);
      asked_.emplace_back();
    }
    return first;
  }
  void join(int a, int b) { parent_[at(root(b))] = root(a); }
  // The same parts are cut into as many units as all that ask for them allow.
  void ask(int dimension, const DimensionParts& parts) {
    std::optional<DimensionParts>& asked = asked_[at(root(dimension))];
    if (!asked) asked = parts;
    if (asked->parts == parts.parts) asked->units = std::gcd(asked->units, parts.units);
  }
  const std::optional<DimensionParts>& asked(int dimension) { return asked_[at(root(dimension))]; }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  int root(int i) {
    while (parent_[at(i)] != i) i = parent_[at(i)] = parent_[at(parent_[at(i)])];
    return i;
  }

  std::vector<int> parent_ = {};
  std::vector<std::optional<DimensionParts>> asked_ = {};
};

// A value of an op, and the first of its dimensions among all.
struct PlacedValue {
  const Shape* shape = nullptr;
  int first = 0;
};
using PlacedValues = std::vector<PlacedValue>;

// Calls f(term, index, value, dimension) for each separable index of one dimension.
template <class F>
void for_each_index(const std::vector<Term>& terms, const PlacedValues& values, const F& f) {
  for (size_t i = 0; i < std::min(values.size(), terms.size()); ++i) {
    for (const char c : terms[i].indices) {
      const auto [first, count] = terms[i].dimensions(c, values[i].shape->rank());
      if (is_separable(c) && count == 1) f(terms[i], c, values[i], values[i].first + first);
    }
  }
}

void join_dimensions(EqualDimensions& all, const Notation& op, const PlacedValues& inputs,
                     const PlacedValues& outputs) {
  std::map<std::pair<char, int64_t>, int> joined;  // by index and extent
  const auto join = [&](const Term& term, char index, const PlacedValue& value, int dimension) {
    if (!term.is_plain(index)) return;
    const int64_t extent = (*value.shape)[dimension - value.first];
    const auto [known, is_new] = joined.emplace(std::pair{index, extent}, dimension);
    if (!is_new) all.join(known->second, dimension);
  };
  for_each_index(op.inputs, inputs, join);
  for_each_index(op.outputs, outputs, join);
}

void ask_for_parts(EqualDimensions& all, const Notation& op, const PlacedValues& inputs,
                   const PlacedValues& outputs) {
  const auto ask = [&](const Term& term, char index, const PlacedValue& value, int dimension) {
    if (const auto parts = asked_parts(term, index, *value.shape)) all.ask(dimension, *parts);
  };
  for_each_index(op.inputs, inputs, ask);
  for_each_index(op.outputs, outputs, ask);
}

WholeValue whole_value(EqualDimensions& all, const Spec& spec, int first) {
  WholeValue value = plain_value(spec);
  for (DimensionParts& dimension : value.dimensions) {
    dimension = all.asked(first++).value_or(dimension);
  }
  return value;
}

}  // namespace

std::optional<DimensionParts> asked_parts(const Term& term, char index, const Shape& shape) {
  const auto [first, count] = term.dimensions(index, shape.rank());
  if (term.is_plain(index) || count != 1 || shape[first] % term.units(index)) return std::nullopt;
  DimensionParts asked{.units = shape[first] / term.units(index)};
  for (const int64_t units : term.parts(index)) asked.parts.push_back(units * asked.units);
  return asked;
}

std::vector<WholeValue> whole_values(const Program& program) {
  EqualDimensions dimensions;
  std::vector<int> first;
  for (const Value& value : program.values) first.push_back(dimensions.add(value.spec.shape));
  const auto placed = [&](const Few<ValueId>& ids) {
    PlacedValues all;
    for (const ValueId v : ids) {
      all.push_back({&program.values[v].spec.shape, first[static_cast<size_t>(v)]});
    }
    return all;
  };
  // All are joined before any are asked for, since a class that is joined later has a new root.
  for (const auto& visit : {join_dimensions, ask_for_parts}) {
    for (const Node& node : program.nodes) {
      visit(dimensions, parse_notation(node.op->indices()), placed(node.inputs),
            placed(node.outputs));
    }
  }
  std::vector<WholeValue> all;
  for (ValueId v = 0; v < program.values.next_id(); ++v) {
    all.push_back(whole_value(dimensions, program.values[v].spec, first[static_cast<size_t>(v)]));
  }
  return all;
}

WholeOp whole_op(const Program& program, NodeId id, const std::vector<WholeValue>& values) {
  const Node& node = program.nodes[id];
  WholeOp op{.notation = parse_notation(node.op->indices())};
  for (const ValueId v : node.inputs) op.inputs.push_back(values[static_cast<size_t>(v)]);
  for (const ValueId v : node.outputs) op.outputs.push_back(values[static_cast<size_t>(v)]);
  return op;
}

WholeOp whole_op(const Notation& notation, const Specs& inputs, const Specs& outputs) {
  EqualDimensions dimensions;
  const auto placed = [&](const Specs& specs) {
    PlacedValues all;
    for (const Spec& spec : specs) all.push_back({&spec.shape, dimensions.add(spec.shape)});
    return all;
  };
  const PlacedValues placed_inputs = placed(inputs), placed_outputs = placed(outputs);
  join_dimensions(dimensions, notation, placed_inputs, placed_outputs);
  ask_for_parts(dimensions, notation, placed_inputs, placed_outputs);
  WholeOp op{.notation = notation};
  for (size_t i = 0; i < inputs.size(); ++i) {
    op.inputs.push_back(whole_value(dimensions, inputs[i], placed_inputs[i].first));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    op.outputs.push_back(whole_value(dimensions, outputs[i], placed_outputs[i].first));
  }
  return op;
}

}  // namespace spool
