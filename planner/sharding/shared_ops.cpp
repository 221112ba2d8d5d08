#include "spool/planner/sharding/shared_ops.h"

#include <algorithm>
#include <iterator>

#include "spool/planner/report/explanation.h"
#include "spool/planner/report/named_nodes.h"
#include "spool/planner/sharding/cut_words.h"
#include "spool/planner/sharding/named_op.h"
#include "spool/planner/sharding/part_rehearsal.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

class Shown {
 public:
  Shown(const Program& program, const Assignment& how, const MeshRanks& ranks,
        const MeshMachine& machine)
      : program_(program),
        how_(how),
        mesh_(ranks.mesh()),
        machine_(machine),
        values_(whole_values(program)),
        names_(named_nodes(program)),
        moves_(static_cast<size_t>(program.nodes.next_id())),
        blocks_(blocks_of(program)) {
    const std::vector<Link> links = how.links.empty() ? std::vector<Link>(mesh_.size()) : how.links;
    const ShardProgram made = shard(program, how, ranks, link_price(mesh_, links));
    for (const ShardNode& node : made.nodes) {
      if (node.is_move) add_move(made, node);
    }
  }

  std::vector<SharedPart> parts() {
    const NodeId all = program_.nodes.next_id();
    if (blocks_.empty()) return {{.name = "the model", .ops = ops(0, all - 1)}};
    std::vector<SharedPart> parts;
    const auto add_beside = [&](const char* name, NodeId first, NodeId last) {
      if (first <= last) parts.push_back({.name = name, .ops = ops(first, last)});
    };
    add_beside("before the layers", 0, blocks_.front().first - 1);
    add_layers(parts);
    add_beside("after the layers", blocks_.back().last + 1, all - 1);
    return parts;
  }

 private:
  std::vector<SharedOp> ops(NodeId first, NodeId last) {
    std::vector<SharedOp> all;
    for (NodeId n = first; n <= last; ++n) all.push_back(op(n));
    return all;
  }

  void add_layers(std::vector<SharedPart>& parts) {
    std::vector<SharedPart> alike;
    std::vector<LayerGroup> groups;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      std::vector<SharedOp> own = ops(blocks_[b].first, blocks_[b].last);
      const auto at = std::ranges::find(alike, own, &SharedPart::ops) - alike.begin();
      if (at == std::ssize(alike)) {
        alike.push_back({.ops = std::move(own)});
        groups.emplace_back();
      }
      const auto group = static_cast<size_t>(at);
      groups[group].add(static_cast<int>(b));
      alike[group].name = layers_of(groups[group]);
      ++alike[group].layers;
    }
    std::ranges::move(alike, std::back_inserter(parts));
  }

  SharedOp op(NodeId n) {
    const Strategy& s = how_.nodes[static_cast<size_t>(n)];
    const WholeOp whole = named_op(program_, n, values_);
    SharedOp shown{.name = names_.names[n], .moves = std::move(moves_[static_cast<size_t>(n)])};
    for (size_t a = 0; a < mesh_.size(); ++a) shown.along.push_back(cut(whole, s, a));
    for (const ValueId v : program_.nodes[n].inputs) {
      const Parameter* const p = program_.values[v].parameter;
      if (!p) continue;
      StoredParameter stored{.name = value_name(v)};
      const auto given = how_.given.find(v);
      for (size_t a = 0; a < mesh_.size(); ++a) {
        stored.along.push_back(given == how_.given.end() ? State::whole() : given->second[a]);
      }
      shown.parameters.push_back(std::move(stored));
    }
    add_joined(shown, n, whole, s);
    return shown;
  }

  CutOfOp cut(const WholeOp& whole, const Strategy& s, size_t axis) const {
    const char index = s.axes[axis].index;
    if (index == ' ' || mesh_[axis] == 1) return {};
    const bool is_made = std::ranges::any_of(whole.notation.outputs,
                                             [&](const Term& t) { return t.carries(index); });
    int64_t ranks = 1;
    for (size_t a = 0; a < mesh_.size(); ++a) {
      if (s.axes[a].index == index) ranks *= mesh_[a];
    }
    return {.by = counted_by(index),
            .is_rows = index == whole.notation.input(0).first(),
            .is_summed = !is_made && !whole.notation.is_joined(index),
            .each = extent(whole, index) / ranks};
  }

  static int64_t extent(const WholeOp& whole, char index) {
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      const Term& term = whole.notation.input(i);
      if (term.carries(index)) return term.extent(index, whole.inputs[i].spec.shape);
    }
    return 0;
  }

  std::string value_name(ValueId v) const {
    const Value& value = program_.values[v];
    if (value.parameter) return layer_name(std::string_view(value.parameter->name)).name;
    return value.producer < 0 ? "an input" : names_.names[value.producer];
  }

  // A sum is shown where it is made, unless a block reads that of another; all else where it is
  // read.
  NodeId place_of(const Move& m, ValueId v, NodeId reader) const {
    const NodeId producer = program_.values[v].producer;
    if (m.from != State::partial() || producer < 0) return reader;
    const auto block = block_of(producer);
    return block == blocks_.end() || block == block_of(reader) ? producer : reader;
  }
  std::vector<TapeScope>::const_iterator block_of(NodeId n) const {
    return std::ranges::find_if(blocks_,
                                [n](const TapeScope& s) { return s.first <= n && n <= s.last; });
  }

  void add_move(const ShardProgram& made, const ShardNode& node) {
    const auto& from = made.values[static_cast<size_t>(node.inputs.front())];
    const auto& to = made.values[static_cast<size_t>(node.outputs.front())];
    const auto axes = from.sharding.along.size();
    size_t axis = 0;
    while (axis < axes && from.sharding[axis] == to.sharding[axis]) ++axis;
    if (axis == axes) return;  // a gather of flat parts, which is of ranks beside this mesh
    const Move m{
        .axis = static_cast<int>(axis), .from = from.sharding[axis], .to = to.sharding[axis]};
    const ValueId v = from.whole;
    const WholeValue& whole = values_[static_cast<size_t>(v)];
    auto& moves = moves_[static_cast<size_t>(place_of(m, v, node.whole))];
    const double forward = link_price(mesh_, machine_.links, false)(whole, from.sharding, m);
    const double both = link_price(mesh_, machine_.links, true)(whole, from.sharding, m);
    const auto add = [&](Collective what, bool is_backward, const Sharding& has, double seconds) {
      const auto has_bytes = static_cast<double>(local_spec(whole, has, mesh_).nbytes());
      const double bytes = sent_bytes(what, has_bytes, mesh_[axis]);
      if (bytes > 0) moves.push_back({m.axis, what, is_backward, value_name(v), bytes, seconds});
    };
    add(forward_of(m), false, from.sharding, forward);
    if (program_.values[v].needs_grad) add(backward_of(m), true, to.sharding, both - forward);
  }

  // What its parts give each other.
  void add_joined(SharedOp& shown, NodeId n, const WholeOp& whole, const Strategy& s) const {
    const bool joins = std::ranges::any_of(
        s.axes, [&](const CutIndex& cut) { return whole.notation.is_joined(cut.index); });
    if (!joins) return;
    const RehearsedPart part = rehearse_part(program_, n, whole, s, mesh_, machine_.machine);
    for (const bool is_backward : {false, true}) {
      for (const JoinedBytes& joined : is_backward ? part.backward : part.forward) {
        for (const JoinedGather& g : gathers_of(joined, s, mesh_, machine_.links)) {
          shown.moves.push_back({.axis = g.axis,
                                 .what = Collective::all_gather,
                                 .is_backward = is_backward,
                                 .value = "parts of " + shown.name,
                                 .bytes = g.bytes,
                                 .seconds = g.seconds});
        }
      }
    }
  }

  const Program& program_;
  const Assignment& how_;
  const MeshAxes& mesh_;
  const MeshMachine& machine_;
  const std::vector<WholeValue> values_;
  const NamedNodes names_;
  std::vector<std::vector<MoveOfOp>> moves_;  // by node
  std::vector<TapeScope> blocks_;
};

}  // namespace

std::vector<SharedPart> shared_ops(const Program& program, const Assignment& how,
                                   const MeshRanks& ranks, const MeshMachine& machine) {
  return Shown(program, how, ranks, machine).parts();
}

}  // namespace spool
