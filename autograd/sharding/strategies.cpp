#include "spool/autograd/sharding/strategies.h"

#include <algorithm>
#include <utility>

#include "spool/autograd/sharding/conversions.h"
#include "spool/autograd/sharding/refusals.h"

namespace spool {
namespace {

bool is_idle(const CutIndex& cut) { return cut.index == ' '; }

class Cutting {
 public:
  Cutting(const WholeOp& op, const CutIndices& axes, const MeshAxes& mesh, Rows rows)
      : op_(op), mesh_(mesh), rows_(rows), cutting_{.axes = axes} {}

  StrategyOrReason result() {
    for (size_t i = 0; i < op_.inputs.size(); ++i) add(whole_operand(op_, i, false));
    for (size_t i = 0; i < op_.outputs.size(); ++i) add(whole_operand(op_, i, true));
    if (why_.empty()) why_ = why_of_parts(op_, cutting_.axes, mesh_);
    if (!why_.empty()) return {.axes = cutting_.axes, .why = std::move(why_)};
    return {.axes = cutting_.axes, .strategy = std::move(cutting_)};
  }

 private:
  bool is_summed(char index) const {
    return !op_.notation.is_joined(index) &&
           std::ranges::none_of(op_.notation.outputs,
                                [=](const Term& output) { return output.carries(index); });
  }

  State state(const WholeOperand& x, const CutIndex& cut) {
    if (is_idle(cut)) return State::whole();
    if (x.term.carries(cut.index)) {
      const auto [first, count] = x.term.dimensions(cut.index, x.value.spec.shape.rank());
      if (cut.dimension < count) return State::cut(first + cut.dimension);
      refuse(why_of_missing_dimension(x, cut));
      return State::whole();
    }
    const bool is_joined = op_.notation.is_joined(cut.index);
    if (is_integer(x.value.spec.dtype)) {
      if (x.is_output && !is_joined) refuse(why_of_integers(x, cut));
      return State::whole();
    }
    if (x.is_output) return is_joined ? State::whole() : State::partial();
    return x.term.is_added && is_summed(cut.index) ? State::partial() : State::shared();
  }

  void add(const WholeOperand& x) {
    Sharding s;
    for (size_t a = 0; a < mesh_.size(); ++a) s[a] = state(x, cutting_.axes[a]);
    const int rows = joinable_rows(x.term, x.value, cutting_.axes, mesh_, rows_);
    if (!local_shape(x.value, s, mesh_, rows)) refuse(why_of_size(op_, x, s, mesh_, rows));
    (x.is_output ? cutting_.outputs : cutting_.inputs).push_back(s);
  }
  void refuse(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }

  const WholeOp& op_;
  const MeshAxes& mesh_;
  Rows rows_;
  Strategy cutting_;
  std::string why_ = {};
};

// How many dimensions of the op's inputs the index stands for.
int dimensions_of(const WholeOp& op, char index) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Term& term = op.notation.input(i);
    if (term.carries(index)) {
      return term.dimensions(index, op.inputs[i].spec.shape.rank()).count;
    }
  }
  return 0;
}

std::vector<CutIndex> choices(const WholeOp& op, Rows rows) {
  std::vector<CutIndex> all{{}};
  for (const char index : op.notation.separable()) {
    const int count = dimensions_of(op, index);
    for (int d = 0; d < (rows == Rows::each ? count : std::min(count, 1)); ++d) {
      all.push_back({.index = index, .dimension = static_cast<int8_t>(d)});
    }
  }
  return all;
}

// A sum of a value along all axes on which it is in this state.
Sum sum_of(const WholeOperand& x, const Sharding& s, State state, const MeshAxes& mesh, int rows) {
  Sum sum{.is_output = x.is_output, .operand = x.number};
  const auto shape = local_shape(x.value, s, mesh, rows);
  const auto bytes = static_cast<double>(Spec{shape.value(), x.value.spec.dtype}.nbytes());
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (s[a] != state) continue;
    sum.axes.push_back(static_cast<int>(a));
    sum.bytes += sent_bytes(Collective::all_reduce, bytes, mesh[a]);
  }
  return sum;
}

void add_if_any(std::vector<Sum>& sums, Sum sum) {
  if (!sum.axes.empty()) sums.push_back(std::move(sum));
}

}  // namespace

StrategyOrReason strategy(const WholeOp& op, const CutIndices& axes, const MeshAxes& mesh,
                          Rows rows) {
  for (size_t a = 0; a < mesh.size(); ++a) {
    const char index = axes[a].index;
    check(index == ' ' || op.notation.separable().find(index) != std::string::npos,
          "a strategy cuts the index '", index, "', and the op can be cut along '",
          op.notation.separable(), "'");
  }
  return Cutting(op, axes, mesh, rows).result();
}

std::vector<StrategyOrReason> all_strategies(const WholeOp& op, const MeshAxes& mesh, Rows rows) {
  const std::vector<CutIndex> each = choices(op, rows);
  std::vector<size_t> chosen(mesh.size(), 0);
  std::vector<StrategyOrReason> all;
  while (true) {
    CutIndices axes = {};
    for (size_t a = 0; a < chosen.size(); ++a) axes[a] = each[chosen[a]];
    all.push_back(strategy(op, axes, mesh, rows));
    size_t a = chosen.size();
    while (a > 0 && ++chosen[a - 1] == each.size()) chosen[--a] = 0;
    if (a == 0) return all;
  }
}

Sums sums_of(const WholeOp& op, const Strategy& strategy, const MeshAxes& mesh, Rows rows) {
  Sums sums;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const WholeOperand x = whole_operand(op, i, false);
    const int joinable = joinable_rows(x.term, x.value, strategy.axes, mesh, rows);
    const Sharding& s = strategy.inputs[i];
    add_if_any(sums.backward, sum_of(x, s, State::shared(), mesh, joinable));
    Sum once = sum_of(x, s, State::partial(), mesh, joinable);
    once.bytes = 0;
    add_if_any(sums.on_one_rank, std::move(once));
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const WholeOperand x = whole_operand(op, i, true);
    const int joinable = joinable_rows(x.term, x.value, strategy.axes, mesh, rows);
    add_if_any(sums.forward, sum_of(x, strategy.outputs[i], State::partial(), mesh, joinable));
  }
  return sums;
}

std::string in_words(const CutIndex& cut, const WholeOp& op, Rows rows) {
  if (is_idle(cut)) return "-";
  std::string words(1, cut.index);
  if (rows == Rows::each && dimensions_of(op, cut.index) > 1)
    words += std::to_string(cut.dimension);
  return words;
}

std::string in_words(const Strategy& strategy, const WholeOp& op, const MeshAxes& mesh, Rows rows) {
  std::string words;
  for (size_t a = 0; a < mesh.size(); ++a) words += in_words(strategy.axes[a], op, rows);
  return words;
}

}  // namespace spool
