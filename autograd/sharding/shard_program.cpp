#include "spool/autograd/sharding/shard_program.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "spool/autograd/sharding/gather_op.h"
#include "spool/autograd/sharding/joined_exchange.h"
#include "spool/autograd/sharding/move_op.h"
#include "spool/autograd/sharding/parameter_part.h"
#include "spool/autograd/sharding/part_place.h"

namespace spool {
namespace {

class Sharder {
 public:
  Sharder(const Program& program, const Assignment& how, const MeshRanks& ranks,
          const MovePrice& price)
      : program_(program),
        values_(whole_values(program)),
        how_(how),
        ranks_(ranks),
        mesh_(ranks.mesh()),
        price_(price) {}

  ShardProgram run() {
    for (const TapeScope& s : program_.scopes) made_.scopes.push_back(s);
    add_leaves();
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) add(n);
    const NodeId last = program_.nodes.next_id() - 1;
    for (const auto& [v, s] : how_.results) made_.results[v] = convert(v, simplified(s), last);
    for (size_t n = 0; n < made_.nodes.size(); ++n) {
      for (const int v : made_.nodes[n].inputs) at(v).last_reader = static_cast<int>(n);
    }
    return std::move(made_);
  }

 private:
  const WholeValue& whole(ValueId v) const { return values_[static_cast<size_t>(v)]; }
  ShardValue& at(int v) { return made_.values[static_cast<size_t>(v)]; }
  const Strategy& strategy_of(NodeId n) const { return how_.nodes[static_cast<size_t>(n)]; }

  // Along an axis of one rank all is whole, so nothing moves.
  Sharding simplified(Sharding s) const {
    for (size_t a = 0; a < MeshAxes::max_axes; ++a) {
      if (a < mesh_.size() && mesh_[a] == 1) s[a] = State::whole();
    }
    return s;
  }
  // What has no gradient need not be shared: it is whole.
  Sharding wanted(ValueId v, const Sharding& by_op) const {
    Sharding s = simplified(by_op);
    if (program_.values[v].needs_grad) return s;
    for (State& state : s.along) {
      if (state == State::shared()) state = State::whole();
    }
    return s;
  }

  void add_leaves() {
    std::map<ValueId, std::vector<Sharding>> readers;
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
      const Few<ValueId>& in = program_.nodes[n].inputs;
      for (size_t i = 0; i < in.size(); ++i) {
        readers[in[i]].push_back(wanted(in[i], strategy_of(n).inputs[i]));
      }
    }
    const std::set<ValueId> written = written_inputs(program_);
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      Parameter* const parameter = program_.values[v].parameter;
      if (program_.values[v].producer >= 0) continue;
      const auto given = how_.given.find(v);
      ShardValue leaf{.whole = v};
      if (given != how_.given.end()) {
        leaf.sharding = simplified(given->second);
      } else if (parameter || written.contains(v)) {
        leaf.sharding = stored(readers[v]);
      }
      if (parameter) {
        leaf.parameter = static_cast<int>(made_.parameters.size());
        const Spec spec = local_spec(whole(v), leaf.sharding, mesh_);
        made_.parameters.push_back({.name = parameter->name,
                                    .whole = parameter,
                                    .value = whole(v),
                                    .stored = leaf.sharding,
                                    .spec = spec,
                                    .flat = flat_parts(*parameter, spec)});
      } else {
        leaf.input = static_cast<int>(made_.inputs.size());
        made_.inputs.push_back(v);
      }
      if (parameter && made_.parameters.back().flat) {
        add_flat(leaf);
      } else {
        add_value(leaf);
      }
    }
  }

  // As it is stored, if it is.
  std::optional<FlatParts> flat_parts(const Parameter& p, const Spec& gathered) const {
    const bool is_stored = p.data || p.part;
    if (is_stored && !(p.part && p.part->flat())) return {};
    if (is_stored) return p.part->flat()->parts;
    const int ranks = ranks_.replicas().size();
    const bool is_flat = how_.in_flat_parts && ranks > 1 && p.trainable &&
                         gathered.shape.numel() >= FlatParts::min_elements;
    return is_flat ? std::optional<FlatParts>({gathered.shape.numel(), ranks}) : std::nullopt;
  }

  // Nothing reads it but the op that gathers it.
  void add_flat(const ShardValue& leaf) {
    flat_[leaf.whole] = std::ssize(made_.values);
    made_.values.push_back(leaf);
  }

  // Gathers the value, for its first reader.
  void gather(ValueId v, NodeId reader) {
    const auto leaf = static_cast<int>(flat_.at(v));
    flat_.erase(v);
    const ShardParameter& p = made_.parameters[static_cast<size_t>(at(leaf).parameter)];
    auto op = gather_op(*p.whole, *p.flat, p.spec, ranks_.replicas());
    const int made = add_value({.whole = v, .sharding = at(leaf).sharding});
    made_.gathers.push_back(made_.nodes.size());
    made_.nodes.push_back({.op = std::move(op),
                           .inputs = {leaf},
                           .outputs = {made},
                           .whole = reader,
                           .is_move = true});
  }

  Sharding stored(const std::vector<Sharding>& readers) const {
    if (readers.empty()) return {};
    Sharding s = readers.back();
    for (size_t a = 0; a < mesh_.size(); ++a) {
      if (s[a].is_cut()) continue;
      const bool all_share =
          std::ranges::all_of(readers, [&](const Sharding& r) { return r[a] == State::shared(); });
      s[a] = all_share ? State::shared() : State::whole();
    }
    return s;
  }

  int add_value(const ShardValue& v) {
    const int position = static_cast<int>(made_.values.size());
    made_.values.push_back(v);
    known_[v.whole].push_back(position);
    return position;
  }

  // Where the value is in this sharding; -1: nowhere yet.
  int find(ValueId v, const Sharding& s) {
    for (const int k : known_.at(v)) {
      if (at(k).sharding == s) return k;
    }
    return -1;
  }

  // Brings the value there by moves from where it is first, which are made once each.
  int convert(ValueId v, const Sharding& to, NodeId reader) {
    if (flat_.contains(v)) gather(v, reader);
    if (const int there = find(v, to); there >= 0) return there;
    int from = known_.at(v).front();
    const Conversions& conversions = conversions_of(whole(v), at(from).sharding);
    check_reachable(v, conversions, at(from).sharding, to);
    for (const Move& m : conversions.moves(to)) {
      Sharding next = at(from).sharding;
      next[static_cast<size_t>(m.axis)] = m.to;
      int after = find(v, next);
      if (after < 0) {
        auto op = move_op(whole(v), at(from).sharding, m, ranks_, name_of(v));
        after = add_value({.whole = v, .sharding = next});
        made_.nodes.push_back({.op = std::move(op),
                               .inputs = {from},
                               .outputs = {after},
                               .whole = reader,
                               .is_move = true});
      }
      from = after;
    }
    return from;
  }

  // Those of equal values are found once.
  const Conversions& conversions_of(const WholeValue& value, const Sharding& from) {
    for (const KnownConversions& k : conversions_) {
      if (k.value == value && k.from == from) return k.all;
    }
    conversions_.push_back({value, from, Conversions(value, from, mesh_, price_)});
    return conversions_.back().all;
  }

  std::string name_of(ValueId v) const {
    const Value& value = program_.values[v];
    if (value.parameter) return std::string(std::string_view(value.parameter->name));
    if (value.producer < 0) return "an input";
    return sentence("the output of ", program_.producer_name(v), " (node ", value.producer, ')');
  }

  void check_reachable(ValueId v, const Conversions& conversions, const Sharding& from,
                       const Sharding& to) const {
    const int rank = whole(v).spec.shape.rank();
    if (conversions.seconds(to)) return;
    fail(ErrorKind::invalid, "sharding: ", name_of(v), ", ", whole(v).spec, ", is ",
         in_words(from, rank, mesh_), " on ", mesh_.text(), ", and no moves lead from there to ",
         in_words(to, rank, mesh_), ", which is wanted");
  }

  void add(NodeId n) {
    const Node& node = program_.nodes[n];
    const Strategy& s = strategy_of(n);
    ShardNode part{.op = part_of(n, s), .whole = n};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      part.inputs.push_back(convert(v, wanted(v, s.inputs[i]), n));
      check(!node.op->writes(static_cast<int>(i)) || part.inputs[i] == known_.at(v).front(),
            "sharding: ", node.op->name(), " changes its input ", i, ", ", whole(v).spec,
            ", which is cut in another way than the op");
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      const Sharding as_made = i < s.outputs.size() ? simplified(s.outputs[i]) : Sharding{};
      part.outputs.push_back(made_.made[v] = add_value({.whole = v, .sharding = as_made}));
    }
    made_.nodes.push_back(std::move(part));
  }

  std::shared_ptr<const Op> part_of(NodeId n, const Strategy& s) {
    const std::shared_ptr<const Op>& op = program_.nodes[n].op;
    const WholeOp whole = whole_op(program_, n, values_);
    std::vector<int> coordinates;
    for (size_t a = 0; a < mesh_.size(); ++a) coordinates.push_back(ranks_.coordinate(a));
    std::shared_ptr<PartExchange> exchange;
    if (!whole.notation.joined.empty()) {
      exchange =
          std::make_shared<JoinedExchange>(s, ranks_, sentence(op->name(), " (node ", n, ')'));
      made_.exchanges.push_back(exchange);
    }
    return std::make_shared<PartOfOp>(op, part_specs(whole.outputs, s.outputs, mesh_),
                                      part_place(n, whole, s, mesh_, coordinates, exchange.get()));
  }

  const Program& program_;
  const std::vector<WholeValue> values_;
  const Assignment& how_;
  const MeshRanks& ranks_;
  const MeshAxes& mesh_;
  const MovePrice& price_;
  ShardProgram made_ = {};
  std::map<ValueId, std::vector<int>> known_ = {};  // by value, the one that is first made or given
  struct KnownConversions {
    WholeValue value;
    Sharding from;
    Conversions all;
  };
  std::deque<KnownConversions> conversions_ = {};
  std::map<ValueId, int64_t> flat_ = {};  // positions of those not gathered yet
};

// Opens and closes the scopes of the whole program around the parts of its ops.
class Scopes {
 public:
  Scopes(const ShardProgram& program, Tape& tape) : program_(program), tape_(tape) {}
  Scopes(const Scopes&) = delete;
  Scopes& operator=(const Scopes&) = delete;
  ~Scopes() { close_before(std::numeric_limits<NodeId>::max()); }

  void enter(NodeId n) {
    close_before(n);
    for (; next_ < program_.scopes.size() && program_.scopes[next_].first <= n; ++next_) {
      const TapeScope& s = program_.scopes[next_];
      if (s.last < n) continue;
      open_.emplace_back(s.last, std::make_unique<Tape::Scope>(tape_, s.options));
    }
  }

 private:
  void close_before(NodeId n) {
    while (!open_.empty() && open_.back().first < n) open_.pop_back();
  }

  const ShardProgram& program_;
  Tape& tape_;
  size_t next_ = 0;
  std::vector<std::pair<NodeId, std::unique_ptr<Tape::Scope>>> open_ = {};
};

// Begins to gather what is gathered next after a gather, beside the ops between.
void gather_next(const ShardProgram& program, size_t after, Tape& tape) {
  if (!program.nodes[after].op->gathers()) return;
  const auto next = std::ranges::upper_bound(program.gathers, after);
  if (next == program.gathers.end()) return;
  tape.begin(*program.nodes[*next].op);
}

// The operands of a node, of values that are there.
std::vector<Operand> operands_of(const ShardProgram& program, const ShardNode& node,
                                 std::span<Parameter* const> parameters,
                                 const std::vector<Var>& vars) {
  std::vector<Operand> operands;
  for (const int v : node.inputs) {
    const int parameter = program.values[static_cast<size_t>(v)].parameter;
    if (parameter >= 0) {
      operands.emplace_back(*parameters[static_cast<size_t>(parameter)]);
    } else {
      operands.emplace_back(vars[static_cast<size_t>(v)]);
    }
  }
  return operands;
}

}  // namespace

std::set<ValueId> written_inputs(const Program& program) {
  std::set<ValueId> written;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    const Node& node = program.nodes[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.op->writes(static_cast<int>(i))) written.insert(node.inputs[i]);
    }
  }
  return written;
}

ShardProgram shard(const Program& program, const Assignment& how, const MeshRanks& ranks,
                   const MovePrice& price) {
  const auto nodes = static_cast<size_t>(program.nodes.next_id());
  check(how.nodes.size() == nodes, "sharding: ", how.nodes.size(), " strategies for ", nodes,
        " ops");
  return Sharder(program, how, ranks, price).run();
}

std::vector<Var> apply(const ShardProgram& program, Tape& tape,
                       std::span<Parameter* const> parameters, std::span<const Var> inputs,
                       std::span<const int> wanted) {
  check(parameters.size() == program.parameters.size() && inputs.size() == program.inputs.size(),
        "sharding: ", parameters.size(), " parameters and ", inputs.size(),
        " inputs for a program of ", program.parameters.size(), " and ", program.inputs.size());
  const auto& values = program.values;
  std::vector<Var> vars(values.size());
  std::vector<bool> is_kept(values.size(), false);
  for (const int v : wanted) is_kept[static_cast<size_t>(v)] = true;
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v].input >= 0) vars[v] = inputs[static_cast<size_t>(values[v].input)];
  }
  Scopes scopes(program, tape);
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const ShardNode& node = program.nodes[n];
    scopes.enter(node.whole);
    const Few<Var> made = tape.apply(node.op, operands_of(program, node, parameters, vars));
    gather_next(program, n, tape);
    for (size_t i = 0; i < made.size(); ++i) {
      const auto v = static_cast<size_t>(node.outputs[i]);
      if (is_kept[v] || values[v].last_reader >= 0) vars[v] = made[i];
    }
    for (const int v : node.inputs) {  // what nothing reads from here on
      const auto read = static_cast<size_t>(v);
      if (values[read].last_reader == static_cast<int>(n) && !is_kept[read]) vars[read] = {};
    }
  }
  std::vector<Var> all;
  for (const int v : wanted) all.push_back(vars[static_cast<size_t>(v)]);
  return all;
}

}  // namespace spool
