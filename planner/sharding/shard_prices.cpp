#include "spool/planner/sharding/shard_prices.h"

#include <algorithm>
#include <cmath>

#include "spool/planner/sharding/part_rehearsal.h"

namespace spool {
namespace {

constexpr double bytes_of_trained_element = 16;

int64_t in_picoseconds(double seconds) { return std::llround(seconds * 1e12); }

bool contains(const std::vector<Sharding>& all, const Sharding& s) {
  return std::ranges::find(all, s) != all.end();
}

// Along axes on which it is in one state, in another.
Sharding replaced(Sharding s, State from, State to) {
  std::ranges::replace(s.along, from, to);
  return s;
}

bool is_partial(const Sharding& s) {
  return std::ranges::find(s.along, State::partial()) != s.along.end();
}

}  // namespace

int64_t ShardPrice::weighed(double seconds_per_byte) const {
  return picoseconds + in_picoseconds(static_cast<double>(bytes) * seconds_per_byte);
}

ShardPrices::ShardPrices(const Program& program, const MeshAxes& mesh, const MeshMachine& machine,
                         bool shares_tables)
    : program_(program),
      mesh_(mesh),
      machine_(machine),
      both_ways_(link_price(mesh, machine.links)),
      forward_(link_price(mesh, machine.links, /*has_gradient=*/false)),
      shares_tables_(shares_tables),
      values_(whole_values(program)),
      written_(written_inputs(program)) {
  find_values();
  find_ops();
}

void ShardPrices::find_values() {
  std::vector<const WholeValue*> known;
  for (const WholeValue& v : values_) {
    const auto same = std::ranges::find_if(known, [&](const WholeValue* k) {
      return k->spec == v.spec && k->dimensions == v.dimensions;
    });
    kind_of_value_.push_back(static_cast<size_t>(same - known.begin()));
    if (same == known.end()) known.push_back(&v);
  }
  is_read_.resize(values_.size(), false);
  for (NodeId n = 0; n < nodes(); ++n) {
    for (const ValueId v : program_.nodes[n].inputs) is_read_[static_cast<size_t>(v)] = true;
    for (const ValueId v : program_.nodes[n].saves) first_to_save_.try_emplace(v, n);
  }
}

bool ShardPrices::saves_first(NodeId n, ValueId v) const {
  const auto first = first_to_save_.find(v);
  return first != first_to_save_.end() && first->second == n;
}

std::string ShardPrices::key_of(NodeId n) const {
  const Node& node = program_.nodes[n];
  if (!shares_tables_) return std::to_string(n);
  std::string key = sentence(node.op->name(), '|', node.op->attributes(), '|', node.op->indices());
  for (const auto* operands : {&node.inputs, &node.outputs}) {
    for (const ValueId v : *operands) {
      const Value& value = program_.values[v];
      const auto first = std::ranges::find(node.inputs, v) - node.inputs.begin();
      key += sentence('|', kind_of_value_[static_cast<size_t>(v)], ' ', first, ' ',
                      value.needs_grad, value.parameter != nullptr, value.producer >= 0,
                      is_result(v), saves_first(n, v));
    }
  }
  return key;
}

void ShardPrices::find_ops() {
  std::map<std::string, size_t> known;
  for (NodeId n = 0; n < nodes(); ++n) {
    const auto [kind, is_new] = known.try_emplace(key_of(n), kinds_.size());
    kind_of_.push_back(kind->second);
    if (!is_new) continue;
    Kind added{.node = n, .op = whole_op(program_, n, values_)};
    added.ways = all_strategies(added.op, mesh_);
    keep_ways_of_axes_of_one_rank_idle(added);
    added.prices.resize(added.ways.size());
    kinds_.push_back(std::move(added));
  }
}

void ShardPrices::keep_ways_of_axes_of_one_rank_idle(Kind& kind) const {
  std::erase_if(kind.ways, [&](const StrategyOrReason& s) {
    for (size_t a = 0; a < mesh_.size(); ++a) {
      if (mesh_[a] == 1 && s.axes[a].index != ' ') return true;
    }
    return false;
  });
}

int64_t ShardPrices::bytes_of(ValueId v, const Sharding& s) const {
  return static_cast<int64_t>(local_spec(whole(v), s, mesh_).nbytes());
}

ShardPrice ShardPrices::of_op(NodeId n, size_t w) {
  Kind& kind = kinds_[kind_of_[static_cast<size_t>(n)]];
  std::optional<ShardPrice>& known = kind.prices[w];
  if (known) return *known;
  const Strategy& s = *kind.ways[w].strategy;
  const RehearsedPart part =
      rehearse_part(program_, kind.node, kind.op, s, mesh_, machine_.machine);
  ShardPrice price{.picoseconds = in_picoseconds(
                       part.seconds + seconds_of_joined(part, s, mesh_, machine_.links))};
  const Node& node = program_.nodes[kind.node];
  for (const ValueId v : node.saves) {
    if (program_.values[v].parameter || !saves_first(kind.node, v)) continue;
    const auto in = std::ranges::find(node.inputs, v), out = std::ranges::find(node.outputs, v);
    if (in != node.inputs.end()) {
      price.bytes += bytes_of(v, s.inputs[static_cast<size_t>(in - node.inputs.begin())]);
    } else if (out != node.outputs.end()) {
      price.bytes += bytes_of(v, s.outputs[static_cast<size_t>(out - node.outputs.begin())]);
    }
  }
  known = price;
  return price;
}

std::vector<ReadValue> ShardPrices::reads(NodeId n) const {
  std::vector<ReadValue> all;
  const Few<ValueId>& inputs = program_.nodes[n].inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto same = std::ranges::find(all, inputs[i], &ReadValue::value);
    if (same == all.end()) same = all.insert(same, {.value = inputs[i]});
    same->inputs.push_back(i);
  }
  return all;
}

std::vector<Sharding> ShardPrices::wanted(NodeId n, const ReadValue& read, size_t w) const {
  std::vector<Sharding> all;
  for (const size_t i : read.inputs) {
    Sharding s = way(n, w).inputs[i];
    if (!program_.values[read.value].needs_grad) s = replaced(s, State::shared(), State::whole());
    if (!contains(all, s)) all.push_back(s);
  }
  return all;
}

const Conversions& ShardPrices::conversions(ValueId v, const Sharding& from) {
  const bool has_gradient = program_.values[v].needs_grad;
  const std::tuple key(kind_of_value_[static_cast<size_t>(v)], has_gradient, from);
  auto at = conversions_.find(key);
  if (at == conversions_.end()) {
    const MovePrice& price = has_gradient ? both_ways_ : forward_;
    at = conversions_.try_emplace(key, whole(v), from, mesh_, price).first;
  }
  return at->second;
}

std::optional<ShardPrice> ShardPrices::of_reading(ValueId v, const Sharding& from,
                                                  const std::vector<Sharding>& wanted) {
  ShardPrice price;
  for (const Sharding& to : wanted) {
    if (to == from) continue;
    if (is_written(v)) return {};
    const auto seconds = conversions(v, from).seconds(to);
    if (!seconds) return {};
    price.picoseconds += in_picoseconds(*seconds);
  }
  return price;
}

std::optional<ShardPrice> ShardPrices::of_reading_stored(ValueId v, const Sharding& stored,
                                                         const std::vector<Sharding>& wanted) {
  ShardPrice price;
  for (const Sharding& to : wanted) {
    Sharding from = stored, read = to;
    for (size_t a = 0; a < MeshAxes::max_axes; ++a) {
      if (stored[a] != State::shared()) continue;
      if (to[a] != State::shared()) return {};
      from[a] = read[a] = State::whole();
    }
    const auto moved = of_reading(v, from, {read});
    if (!moved) return {};
    price += *moved;
    const bool is_copied = local_shape(whole(v), from, mesh_) != local_shape(whole(v), read, mesh_);
    if (is_copied && !is_partial(read)) price.bytes += bytes_of(v, read);
  }
  return price;
}

ShardPrice ShardPrices::of_storing(ValueId v, const Sharding& stored) {
  if (!program_.values[v].needs_grad) return {.bytes = bytes_of(v, stored)};
  const auto elements = static_cast<double>(local_spec(whole(v), stored, mesh_).shape.numel());
  ShardPrice price{.bytes = std::llround(bytes_of_trained_element * elements)};
  Sharding before = stored;
  for (size_t a = 0; a < mesh_.size(); ++a) {
    if (stored[a] != State::shared() || hides_sums_) continue;
    before[a] = State::whole();
    const Move m{.axis = static_cast<int>(a), .from = State::whole(), .to = State::shared()};
    price.picoseconds += in_picoseconds(both_ways_(whole(v), before, m));
  }
  return price;
}

std::vector<Sharding> ShardPrices::storages(ValueId v, const Sharding& wanted) const {
  std::vector<Sharding> all{replaced(wanted, State::partial(), State::whole())};
  if (!program_.values[v].needs_grad || whole(v).spec.shape.numel() < smallest_in_parts) return all;
  for (size_t a = 0; a < mesh_.size(); ++a) {
    if (wanted[a] != State::shared()) continue;
    for (size_t i = 0, end = all.size(); i < end; ++i) {
      Sharding in_parts = all[i];
      in_parts[a] = State::cut(0);
      if (local_shape(whole(v), in_parts, mesh_)) all.push_back(in_parts);
    }
  }
  return all;
}

bool ShardPrices::is_result(ValueId v) const {
  const Value& value = program_.values[v];
  return value.producer >= 0 && value.needs_grad && !is_read_[static_cast<size_t>(v)];
}

ShardPrice ShardPrices::of_result(ValueId v, const Sharding& made) {
  return of_reading(v, made, {Sharding{}}).value();  // what an op makes can be made whole
}

std::optional<ShardPrices::Total> ShardPrices::of(const Assignment& how, double seconds_per_byte) {
  Total total;
  const auto add = [&](const ShardPrice& p) {
    total.price += p;
    total.weighed += p.weighed(seconds_per_byte);
  };
  std::map<ValueId, Sharding> is;
  for (const auto& [v, stored] : how.given) {
    is[v] = stored;
    add(of_storing(v, stored));
  }
  for (NodeId n = 0; n < nodes(); ++n) {
    const Node& node = program_.nodes[n];
    const Strategy& s = how.nodes[static_cast<size_t>(n)];
    const auto found = std::ranges::find(ways(n), s.axes, &StrategyOrReason::axes);
    const auto w = static_cast<size_t>(found - ways(n).begin());
    add(of_op(n, w));
    for (const ReadValue& read : reads(n)) {
      const bool is_parameter = program_.values[read.value].parameter != nullptr;
      const Sharding from = is[read.value];
      const auto moved = is_parameter ? of_reading_stored(read.value, from, wanted(n, read, w))
                                      : of_reading(read.value, from, wanted(n, read, w));
      if (!moved) return {};
      add(*moved);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      is[node.outputs[i]] = s.outputs[i];
      if (is_result(node.outputs[i])) add(of_result(node.outputs[i], s.outputs[i]));
    }
  }
  return total;
}

}  // namespace spool
