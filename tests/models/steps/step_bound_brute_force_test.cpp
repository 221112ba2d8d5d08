// runs: numbers
// The bound of a transformer step compared with every plan that keeps or recomputes the outputs of
// each node.

#include <gtest/gtest.h>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/search/bound/step_bound.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

// Nodes whose outputs backward reads, and that may run again.
std::vector<NodeId> recomputable_nodes(const Program& program) {
  IdTable<ValueId, bool> is_saved(program.values.size());
  for (const Node& node : program.nodes) {
    for (const ValueId v : node.saves) is_saved[v] = true;
  }
  std::vector<NodeId> nodes;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    const Node& node = program.nodes[n];
    const auto is_read = [&](ValueId v) { return is_saved[v]; };
    if (node.op->recomputable() && std::ranges::any_of(node.outputs, is_read)) nodes.push_back(n);
  }
  return nodes;
}

void expect_holds(const TransformerSizes& sizes, const Machine& machine) {
  const SearchedStep step = searched_step(describe(sizes), machine);
  const MeasuredSegments m = measure_segments(step, {.loss_rows = 0});
  StepBound bound(m, /*micro_batches=*/1, /*bytes_per_second=*/0);
  const std::vector<NodeId> nodes = recomputable_nodes(*m.program);
  ASSERT_LE(nodes.size(), 12u);
  for (size_t chosen = 0; chosen < size_t{1} << nodes.size(); ++chosen) {
    Plan plan;
    plan.placement.assign(m.program->values.size(), Placement::keep);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!(chosen >> i & 1)) continue;
      for (const ValueId v : m.program->nodes[nodes[i]].outputs) {
        plan.placement[v] = Placement::recompute;
      }
    }
    const RehearsedStep rehearsed = step.rehearse(plan, std::nullopt, {.survey = true});
    const double min = bound.seconds_within(rehearsed.survey.peak()->live);
    ASSERT_LE(min, rehearsed.report.seconds * (1 + 1e-9)) << chosen;
  }
}

// In bf16, a product's backward has its peak before it reads its input.
TEST(StepBound, HoldsForEveryPlacementOfATransformersLayer) {
  for (const int64_t tokens : {64, 256}) {
    for (const int64_t channels : {64, 256}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(sentence(tokens, " tokens, ", channels, " channels, ", name(dtype)));
        const TransformerSizes sizes{.layers = 1,
                                     .channels = channels,
                                     .heads = channels / 64,
                                     .vocabulary = 64,
                                     .batch = 4,
                                     .tokens = tokens,
                                     .dtype = dtype};
        expect_holds(sizes, cpu_machine());
        expect_holds(sizes, *named_machine("h200"));
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
