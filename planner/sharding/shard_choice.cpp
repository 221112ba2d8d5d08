#include "spool/planner/sharding/shard_choice.h"

#include <algorithm>

#include "spool/planner/sharding/cheapest_shards.h"
#include "spool/planner/sharding/named_op.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr char idle = ' ';
constexpr double usual_seconds_per_byte = 1e-12;

bool is_megatron(ShardPolicy policy) {
  return policy == ShardPolicy::megatron || policy == ShardPolicy::megatron_rows;
}

// The index of the rows of an op; ' ': it has none.
char rows_index(const Notation& notation) {
  const char first = notation.input(0).first();
  return is_separable(first) ? first : idle;
}

// What a policy allows of the ways of each op.
class AllowedWays {
 public:
  // `last`: how megatron cuts along the last axis; null: to be chosen.  `may_be_whole`: ops whose
  // rows do not divide are not cut.
  AllowedWays(const ShardPrices& prices, ShardPolicy policy, const Assignment* last,
              bool may_be_whole)
      : prices_(prices),
        policy_(policy),
        may_be_whole_(may_be_whole),
        values_with_rows_(prices.values().size(), false) {
    for (ValueId v = 0; v < program().values.next_id(); ++v) {
      const Value& value = program().values[v];
      if (value.producer < 0 && !value.parameter) values_with_rows_[static_cast<size_t>(v)] = true;
    }
    for (NodeId n = 0; n < prices.nodes(); ++n) {
      if (policy == ShardPolicy::automatic) {
        all_.push_back(strategies_of(n));
      } else if (!is_megatron(policy)) {
        all_.push_back({policy == ShardPolicy::rows ? rows(n) : 0});
      } else {
        all_.push_back(last ? like(n, last->nodes[static_cast<size_t>(n)]) : megatron(n));
      }
    }
  }

  const std::vector<std::vector<size_t>>& all() const { return all_; }

  // Whether the policy cuts the op by this index along the axis, if it divides.
  bool may_cut(NodeId n, size_t axis, char index) const {
    if (policy_ == ShardPolicy::none || prices_.mesh()[axis] == 1) return false;
    const bool is_last = axis + 1 == prices_.mesh().size();
    return !is_megatron(policy_) || !is_last || index != rows_index(notation(n));
  }

 private:
  const Program& program() const { return prices_.program(); }
  Notation notation(NodeId n) const { return parse_notation(program().nodes[n].op->indices()); }

  std::vector<size_t> strategies_of(NodeId n) const {
    std::vector<size_t> all;
    for (size_t w = 0; w < prices_.ways(n).size(); ++w) {
      if (prices_.ways(n)[w].strategy) all.push_back(w);
    }
    return all;
  }

  // Every axis cuts rows.
  size_t rows(NodeId n) {
    const Node& node = program().nodes[n];
    const Notation op = notation(n);
    const char index = rows_index(op);
    if (!has_rows(node, op, index)) return 0;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool is_cut = op.output(i).carries(index);
      values_with_rows_[static_cast<size_t>(node.outputs[i])] = is_cut;
    }
    CutIndices axes = {};
    for (size_t a = 0; a < std::min(axes.size(), prices_.mesh().size()); ++a) {
      if (prices_.mesh()[a] > 1) axes[a].index = index;
    }
    const auto way = std::ranges::find(prices_.ways(n), axes, &StrategyOrReason::axes);
    if (way->strategy) return static_cast<size_t>(way - prices_.ways(n).begin());
    if (!may_be_whole_) refuse_rows(n, axes);
    return 0;
  }

  bool has_rows(const Node& node, const Notation& op, char index) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (index != idle && op.input(i).carries(index) &&
          values_with_rows_[static_cast<size_t>(v)] && program().values[v].spec.shape.numel() > 1) {
        return true;
      }
    }
    return false;
  }

  [[noreturn]] void refuse_rows(NodeId n, const CutIndices& axes) const {
    const WholeOp op = named_op(program(), n, prices_.values());
    fail_setting(ErrorKind::invalid, {"shard", "mesh"}, "rows do not divide on the mesh ",
                 prices_.mesh().text(), ": ", node_in_words(program(), n), ": ",
                 strategy(op, axes, prices_.mesh()).why);
  }

  // Those that cut the last axis so.
  std::vector<size_t> like(NodeId n, const Strategy& last) const {
    const size_t axis = prices_.mesh().size() - 1;
    std::vector<size_t> allowed;
    for (size_t w = 0; w < prices_.ways(n).size(); ++w) {
      const StrategyOrReason& s = prices_.ways(n)[w];
      if (s.strategy && s.axes[axis] == last.axes[axis]) allowed.push_back(w);
    }
    return allowed;
  }

  std::vector<size_t> megatron(NodeId n) const {
    const auto& ways = prices_.ways(n);
    std::vector<size_t> allowed;
    int best = 2;
    for (size_t w = 0; w < ways.size(); ++w) {
      if (!ways[w].strategy) continue;
      const auto rank = rank_of(n, *ways[w].strategy);
      if (!rank || *rank > best) continue;
      if (*rank < best) allowed.clear();
      best = *rank;
      allowed.push_back(w);
    }
    return allowed;
  }

  // Of a way, along the last axis: those of the lowest rank that an op has are allowed.  A table is
  // cut by its vocabulary, which is summed away; a product, and what has heads, by any index but
  // rows; all others as is cheapest.  None: not allowed.
  std::optional<int> rank_of(NodeId n, const Strategy& s) const {
    const size_t last = prices_.mesh().size() - 1;
    const char index = s.axes[last].index;
    if (prices_.mesh()[last] == 1) return 0;
    const Notation op = notation(n);
    const bool is_free = !is_lookup(n) && heads_of(op).empty() && !is_product(n, op);
    if (index != idle && index == rows_index(op)) {
      return is_free && policy_ == ShardPolicy::megatron_rows ? std::optional(0) : std::nullopt;
    }
    if (is_lookup(n)) return index != idle && !op.output(0).carries(index) ? 0 : 1;
    if (is_free || !divides_by_all(n, op)) return 0;
    return index == idle ? 1 : 0;
  }

  bool is_lookup(NodeId n) const {
    const Few<ValueId>& in = program().nodes[n].inputs;
    return is_integer(program().values[in[0]].spec.dtype) && in.size() > 1;
  }

  // With a parameter: an index of both is summed away, or joined.
  bool is_product(NodeId n, const Notation& op) const {
    const Few<ValueId>& in = program().nodes[n].inputs;
    if (in.size() < 2 || !program().values[in[1]].parameter) return false;
    return std::ranges::any_of(op.input(1).indices, [&](char c) {
      const bool is_summed = op.input(0).carries(c) && !op.output(0).carries(c);
      return is_summed || op.is_joined(c);
    });
  }

  // Along the last axis alone, by each index but rows.
  bool divides_by_all(NodeId n, const Notation& op) const {
    const size_t last = prices_.mesh().size() - 1;
    return std::ranges::all_of(prices_.ways(n), [&](const StrategyOrReason& s) {
      for (size_t a = 0; a < last; ++a) {
        if (s.axes[a].index != idle) return true;
      }
      return s.strategy || s.axes[last].index == rows_index(op);
    });
  }

  const ShardPrices& prices_;
  ShardPolicy policy_;
  bool may_be_whole_;
  std::vector<bool> values_with_rows_;
  std::vector<std::vector<size_t>> all_ = {};
};

// Why no index cuts an op along an axis, beside how it is cut along the others: why the first does
// not divide.  Empty: it is cut, or some index divides, or the policy has none.
std::string why_uncut(const ShardPrices& prices, const AllowedWays& policy, NodeId n, size_t axis,
                      const Strategy& chosen) {
  std::optional<CutIndices> first;
  for (const StrategyOrReason& other : prices.ways(n)) {
    const char index = other.axes[axis].index;
    CutIndices axes = chosen.axes;
    axes[axis].index = index;
    if (index == idle || other.axes != axes || !policy.may_cut(n, axis, index)) continue;
    if (other.strategy) return {};
    if (!first) first = axes;
  }
  if (!first) return {};
  return strategy(named_op(prices.program(), n, prices.values()), *first, prices.mesh()).why;
}

std::vector<UncutOp> uncut_ops(const ShardPrices& prices, const AllowedWays& policy,
                               const Assignment& how) {
  std::vector<UncutOp> uncut;
  for (NodeId n = 0; n < prices.nodes(); ++n) {
    for (size_t a = 0; a < prices.mesh().size(); ++a) {
      std::string why = why_uncut(prices, policy, n, a, how.nodes[static_cast<size_t>(n)]);
      if (!why.empty()) uncut.push_back({n, static_cast<int>(a), std::move(why)});
    }
  }
  return uncut;
}

bool can_cut(const ShardPrices& prices, const AllowedWays& policy, size_t axis) {
  for (NodeId n = 0; n < prices.nodes(); ++n) {
    for (const size_t way : policy.all()[static_cast<size_t>(n)]) {
      if (prices.way(n, way).axes[axis].index != idle) return true;
    }
  }
  return false;
}

// Refuses an axis along which nothing can be cut, with what does not divide.
void check_axis(const ShardPrices& prices, const AllowedWays& policy, size_t axis) {
  if (prices.mesh()[axis] == 1 || can_cut(prices, policy, axis)) return;
  constexpr size_t most_named = 4;
  std::string words;
  std::vector<size_t> kinds;
  for (NodeId n = 0; n < prices.nodes() && kinds.size() < most_named; ++n) {
    if (std::ranges::find(kinds, prices.kind(n)) != kinds.end()) continue;
    const std::string why = why_uncut(prices, policy, n, axis, prices.way(n, 0));
    if (why.empty()) continue;
    kinds.push_back(prices.kind(n));
    words += sentence("; ", node_in_words(prices.program(), n), ": ", why);
  }
  const MeshAxis& a = prices.mesh().axes[axis];
  fail_setting(ErrorKind::invalid, {"mesh", "shard"}, "no op of the model can be cut along axis ",
               a.name, " of the mesh, which has ", a.size, " ranks",
               words.empty() ? "; give it 1" : words);
}

// What has no gradient is not shared: it is whole.
std::map<ValueId, Sharding> without_gradients(const Program& program,
                                              std::map<ValueId, Sharding> stored) {
  for (auto& [v, s] : stored) {
    if (!program.values[v].needs_grad) {
      std::ranges::replace(s.along, State::shared(), State::whole());
    }
  }
  return stored;
}

ShardChoice choose(ShardPrices& prices, const AllowedWays& allowed,
                   const std::map<ValueId, Sharding>& stored, double seconds_per_byte) {
  ShardChoice choice;
  choice.how = cheapest_shards(
      prices, {.allowed = allowed.all(), .stored = stored, .seconds_per_byte = seconds_per_byte});
  choice.how.links = prices.links();
  const auto total = prices.of(choice.how, seconds_per_byte);
  choice.seconds = static_cast<double>(total->price.picoseconds) * 1e-12;
  choice.bytes = total->price.bytes;
  choice.uncut = uncut_ops(prices, allowed, choice.how);
  return choice;
}

ShardChoice choose(const Program& program, const MeshAxes& mesh, const MeshMachine& machine,
                   ShardPolicy policy, const std::map<ValueId, Sharding>& stored,
                   const Assignment* last) {
  ShardPrices prices(program, mesh, machine);
  const bool is_another = !stored.empty();
  const AllowedWays allowed(prices, policy, last, is_another);
  if (policy != ShardPolicy::none && !is_another) {
    for (size_t a = 0; a < mesh.size(); ++a) check_axis(prices, allowed, a);
  }
  const bool is_free = is_megatron(policy) || policy == ShardPolicy::automatic;
  return choose(prices, allowed, stored, is_free ? usual_seconds_per_byte : 0);
}

// How megatron cuts along the last axis, as if it were alone.
Assignment megatron_along_last(const Program& program, MeshAxes mesh, const MeshMachine& machine,
                               ShardPolicy policy, const std::map<ValueId, Sharding>& stored) {
  const size_t last = mesh.size() - 1;
  for (size_t a = 0; a < last; ++a) mesh.axes[a].size = 1;
  std::map<ValueId, Sharding> along_last;
  for (const auto& [v, s] : stored) along_last[v][last] = s[last];
  return choose(program, mesh, machine, policy, along_last, nullptr).how;
}

}  // namespace

void check_axes(const ShardPrices& prices) {
  const AllowedWays all(prices, ShardPolicy::automatic, nullptr, false);
  for (size_t a = 0; a < prices.mesh().size(); ++a) check_axis(prices, all, a);
}

ShardChoice cheapest_choice(ShardPrices& prices, double seconds_per_byte) {
  const AllowedWays all(prices, ShardPolicy::automatic, nullptr, false);
  return choose(prices, all, {}, seconds_per_byte);
}

ShardChoice choose_shards(const Program& program, const MeshAxes& mesh, const MeshMachine& machine,
                          ShardPolicy policy, const std::map<ValueId, Sharding>& stored) {
  const auto given = without_gradients(program, stored);
  if (!is_megatron(policy) || mesh.size() == 1) {
    return choose(program, mesh, machine, policy, given, nullptr);
  }
  const Assignment last = megatron_along_last(program, mesh, machine, policy, given);
  return choose(program, mesh, machine, policy, given, &last);
}

}  // namespace spool
