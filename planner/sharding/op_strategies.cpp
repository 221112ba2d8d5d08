#include "spool/planner/sharding/op_strategies.h"

#include "spool/autograd/sharding/linear_names.h"
#include "spool/planner/sharding/part_rehearsal.h"

namespace spool {
namespace {

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
    add_joined(part.forward, s, one.forward);
    add_joined(part.backward, s, one.backward);
    if (machine_) {
      one.seconds = part.seconds + seconds_of_joined(part, s, list_.mesh, machine_->links) +
                    seconds_of_sums(s);
    }
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

  void add_joined(const std::vector<JoinedBytes>& joined, const Strategy& s,
                  std::vector<ValueExchange>& to) const {
    for (const JoinedBytes& j : joined) {
      ValueExchange& gather = to.emplace_back();
      gather.value = std::string(1, j.index) + "*";
      gather.move = Collective::all_gather;
      for (const JoinedGather& g : gathers_of(j, s, list_.mesh, {})) {
        gather.axes.insert(gather.axes.begin(), g.axis);
        gather.bytes += g.bytes;
      }
    }
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
