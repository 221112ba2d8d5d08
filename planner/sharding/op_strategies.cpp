#include "spool/planner/sharding/op_strategies.h"

#include "spool/autograd/sharding/linear_names.h"
#include "spool/planner/sharding/part_rehearsal.h"

namespace spool {
namespace {

// What a rank sends of one part, and the seconds of it, to give all those along an index: along the
// inner axes first.
struct Gathered {
  ValueExchange exchange = {};
  double seconds = 0;
};

Gathered gather_of(const JoinedBytes& joined, const Strategy& s, const MeshAxes& mesh,
                   const std::vector<Link>& links) {
  Gathered all{
      .exchange = {.value = std::string(1, joined.index) + "*", .move = Collective::all_gather}};
  double bytes = joined.bytes;
  for (size_t a = mesh.size(); a-- > 0;) {
    if (s.axes[a].index != joined.index) continue;
    const double sent = sent_bytes(Collective::all_gather, bytes, mesh[a]);
    all.exchange.axes.insert(all.exchange.axes.begin(), static_cast<int>(a));
    all.exchange.bytes += sent;
    if (!links.empty() && sent > 0)
      all.seconds += links[a].seconds + sent / links[a].bytes_per_second;
    bytes *= mesh[a];
  }
  return all;
}

class StrategyList {
 public:
  StrategyList(const DescribedOp& described, const MeshAxes& mesh,
               const std::optional<MeshMachine>& machine)
      : described_(described), machine_(machine) {
    const Program& program = described.program;
    const Op& op = *described.node().op;
    list_ = {.op = op.name(),
             .notation = op.indices(),
             .mesh = mesh,
             .whole = whole_op(program, /*id=*/0, whole_values(program)),
             .inputs = described.inputs};
    list_.whole.counted = described.counted;
    for (const OperandName& input : described.inputs) list_.whole.input_names.push_back(input.name);
    leave_out_statistics(op);
  }

  OpStrategies list() {
    for (StrategyOrReason& found : all_strategies(list_.whole, list_.mesh, Rows::each)) {
      if (found.strategy) {
        list_.all.push_back(described_strategy(*found.strategy));
      } else {
        list_.refused.push_back(std::move(found));
      }
    }
    return std::move(list_);
  }

 private:
  // Outputs that exist for backward alone, and have rows of their own.
  void leave_out_statistics(const Op& op) {
    std::vector<WholeValue>& outputs = list_.whole.outputs;
    int count = 0;
    while (count < static_cast<int>(outputs.size()) && op.differentiable(count)) ++count;
    outputs.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const std::string name = i == 0 ? "y" : sentence("y", i);
      list_.whole.output_names.push_back(name);
      list_.outputs.push_back({name, name});
    }
  }

  OpStrategy described_strategy(const Strategy& s) {
    OpStrategy one{.cut = s, .colossalai = colossalai_name(list_.whole, s, list_.mesh)};
    add_sums(one);
    if (!machine_ && list_.whole.notation.joined.empty()) return one;
    const RehearsedPart part = rehearse_part(described_.program, /*id=*/0, list_.whole, s,
                                             list_.mesh, machine_ ? machine_->machine : Machine{});
    double joined = add_joined(part.forward, s, one.forward);
    joined += add_joined(part.backward, s, one.backward);
    if (machine_) one.seconds = part.seconds + joined + seconds_of_sums(s);
    return one;
  }

  bool needs_gradient(size_t input) const {
    const Program& program = described_.program;
    return program.values[described_.node().inputs[input]].needs_grad;
  }

  void add_sums(OpStrategy& one) const {
    const Sums sums = sums_of(list_.whole, one.cut, list_.mesh, Rows::each);
    for (const Sum& sum : sums.forward) {
      one.forward.push_back({.value = list_.whole.output_names[sum.operand],
                             .move = Collective::all_reduce,
                             .axes = sum.axes,
                             .bytes = sum.bytes});
    }
    for (const Sum& sum : sums.backward) {
      if (!needs_gradient(sum.operand)) continue;
      one.backward.push_back({.value = "d" + list_.inputs[sum.operand].symbol,
                              .move = Collective::all_reduce,
                              .axes = sum.axes,
                              .bytes = sum.bytes});
    }
  }

  double seconds_of_sums(const Strategy& s) const {
    const MovePrice price = link_price(list_.mesh, machine_->links);
    double seconds = 0;
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      if (!needs_gradient(i)) continue;
      seconds += seconds_of_moves(list_.whole.inputs[i], s.inputs[i], State::shared(), price);
    }
    for (size_t i = 0; i < s.outputs.size(); ++i) {
      seconds += seconds_of_moves(list_.whole.outputs[i], s.outputs[i], State::partial(), price);
    }
    return seconds;
  }

  // An input becomes shared by a move from whole, a partial output whole by a move.
  double seconds_of_moves(const WholeValue& value, const Sharding& s, State state,
                          const MovePrice& price) const {
    double seconds = 0;
    for (size_t a = 0; a < list_.mesh.size(); ++a) {
      if (s[a] != state) continue;
      const bool is_shared = state == State::shared();
      Sharding before = s;
      if (is_shared) before[a] = State::whole();
      seconds += price(value, before,
                       {.axis = static_cast<int>(a),
                        .from = before[a],
                        .to = is_shared ? State::shared() : State::whole()});
    }
    return seconds;
  }

  // Returns the seconds.
  double add_joined(const std::vector<JoinedBytes>& joined, const Strategy& s,
                    std::vector<ValueExchange>& to) const {
    double seconds = 0;
    for (const JoinedBytes& j : joined) {
      const Gathered g =
          gather_of(j, s, list_.mesh, machine_ ? machine_->links : std::vector<Link>{});
      to.push_back(g.exchange);
      seconds += g.seconds;
    }
    return seconds;
  }

  const DescribedOp& described_;
  const std::optional<MeshMachine>& machine_;
  OpStrategies list_ = {};
};

}  // namespace

double OpStrategy::sent_bytes() const {
  double bytes = 0;
  for (const auto* exchanges : {&forward, &backward}) {
    for (const ValueExchange& e : *exchanges) bytes += e.bytes;
  }
  return bytes;
}

std::vector<std::string> OpStrategies::cut_in_words(const CutIndices& axes) const {
  std::vector<std::string> words;
  for (size_t a = 0; a < mesh.size(); ++a) words.push_back(in_words(axes[a], whole, Rows::each));
  return words;
}

OpStrategies op_strategies(const DescribedOp& op, const MeshAxes& mesh,
                           const std::optional<MeshMachine>& machine) {
  return StrategyList(op, mesh, machine).list();
}

}  // namespace spool
