// runs: numbers
// Ranks that store parameters in parts gather them again in time, and plans of their steps are near
// the bound.

#include <gtest/gtest.h>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/search/options.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{.layers = 12,
                                 .channels = 1536,
                                 .heads = 12,
                                 .vocabulary = 50304,
                                 .batch = 4,
                                 .tokens = 1024,
                                 .dtype = DType::bf16};

StepDescription on_eight_ranks() {
  return with_neighbours(
      describe(sizes, {.dtype = DType::bf16, .accumulate = 8, .ranks = 8, .zero = 3}));
}

// Ranks with links of 450 GB/s.
Machine machine() {
  Machine machine = *named_machine("h200");
  machine.mesh.link = {.seconds = 8e-6, .bytes_per_second = 450e9};
  return machine;
}

// Activations and the products that they are computed from, and what is gathered.
StepPlans recomputing(bool gathers) {
  const Program program = rehearse_tape(on_eight_ranks(), {}, machine()).program;
  StepPlans plans;
  plans.step.buckets_in_flight = 4;
  plans.step.placement.assign(program.values.size(), Placement::keep);
  const auto recompute = [&](ValueId v) { plans.step.placement[v] = Placement::recompute; };
  for (const Node& node : program.nodes) {
    if (node.op->kind() == OpKind::activation) recompute(node.inputs[0]);
    if (node.op->kind() == OpKind::activation || (gathers && node.op->gathers())) {
      recompute(node.outputs[0]);
    }
  }
  return plans;
}

TEST(GathersAgain, AreHiddenBesideWhatRunsBefore) {
  const double kept = foretell_step(on_eight_ranks(), recomputing(false), machine()).seconds,
               again = foretell_step(on_eight_ranks(), recomputing(true), machine()).seconds;
  EXPECT_LT(again, 1.005 * kept);
}

TEST(GathersAgain, AreOneCandidateOfASegment) {
  const Program program = rehearse_tape(on_eight_ranks(), {}, machine()).program;
  const std::vector<Segment> segments = segments_of(program);
  const int blocks = most_frequent_kind(segments);
  const Segment& block = *std::ranges::find(segments, blocks, &Segment::kind);
  int gathered = 0;
  for (const ValueId v : block.candidates) {
    if (program.nodes[program.values[v].producer].op->gathers()) ++gathered;
  }
  EXPECT_EQ(gathered, 1);
  EXPECT_EQ(block.candidates.size(), max_candidates + 1);
  for (const SegmentOption& option : recompute_options(program, block)) {
    const auto gathers = std::ranges::count_if(option.recomputed, [&](const SegmentOutput& o) {
      return program.nodes[block.first + o.node].op->gathers() != nullptr;
    });
    EXPECT_TRUE(gathers == 0 || gathers == 4) << gathers;
  }
}

TEST(GathersAgain, HavePlansNearTheBoundInEveryBudget) {
  const RunSteps run{on_eight_ranks()};
  const StepRequest request{.choose = Choices{.placement = true}};
  StepPlanner planner(run, {.steps = request}, machine());
  const size_t max = planner.keep_all_peak(), min = planner.smallest_budget();
  for (const size_t part : {4, 8, 12, 15}) {
    StepRequest within = request;
    within.budget = min + (max - min) * part / 16;
    const PlannedSteps planned = StepPlanner(run, {.steps = within}, machine()).plan();
    SCOPED_TRACE(within.budget);
    EXPECT_FALSE(planned.refusal);
    EXPECT_LE(planned.foretold.seconds, 1.02 * planned.search->lower_bound);
    EXPECT_LT(planned.search->rehearsals, 500);
  }
}

}  // namespace
}  // namespace spool::testing
