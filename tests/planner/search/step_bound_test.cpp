// runs: numbers
// The bound of a step, in cases where it could easily be too high.

#include "spool/planner/search/bound/step_bound.h"

#include <gtest/gtest.h>

#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

// Expects that the bound holds whatever values are recomputed.
void expect_holds(const SyntheticModel& model) {
  const SearchedStep step = searched_step(model);
  const MeasuredSegments m = measure_segments(step, {});
  StepBound bound(m, model.micro_batches, /*bytes_per_second=*/0);
  const std::vector<ValueId> values = recomputable_values(*m.program);
  ASSERT_LE(values.size(), 8u);
  for (size_t chosen = 0; chosen < size_t{1} << values.size(); ++chosen) {
    Plan plan;
    plan.placement.assign(m.program->values.size(), Placement::keep);
    for (size_t i = 0; i < values.size(); ++i) {
      if (chosen >> i & 1) plan.placement[values[i]] = Placement::recompute;
    }
    const RehearsedStep rehearsed = step.rehearse(plan, std::nullopt, {.survey = true});
    const size_t live = rehearsed.survey.peak()->live;
    EXPECT_LE(bound.seconds_within(live), step_seconds(rehearsed, model.micro_batches) * (1 + 1e-9))
        << chosen << ": " << live / Arena::granule << " granules";
  }
}

TEST(StepBound, HoldsIfANodeReadsOnlyInForwardWhatAnEarlierOneSaves) {
  SyntheticModel model;
  model.ops = {{.inputs = {-1}, .output = 16, .saves_inputs = false, .saves_output = true},
               {.inputs = {0}, .output = 1, .backward_scratch = 64, .saves_inputs = false}};
  expect_holds(model);
}

TEST(StepBound, HoldsWhereAChunkedOpBeginsItsSegment) {
  SyntheticModel model;
  for (int i = 0; i < 4; ++i) {
    model.ops.push_back({.inputs = {i - 1}, .output = i % 2 ? 2 : 32, .layer = i / 2});
  }
  model.ops.push_back({.inputs = {3},
                       .scratch = 64,
                       .saves_inputs = false,
                       .is_recomputable = false,
                       .rows = 4096});
  const SearchedStep step = searched_step(model);
  const MeasuredSegments m = measure_segments(step, {});
  StepBound bound(m, 1, /*bytes_per_second=*/0);
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const RehearsedStep rehearsed =
        step.rehearse(random_plan(random, *m.program), std::nullopt, {.survey = true});
    EXPECT_LE(bound.seconds_within(rehearsed.survey.peak()->live),
              rehearsed.report.seconds * (1 + 1e-9));
  }
}

TEST(StepBound, HoldsForEveryPlacementInSmallModels) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    SyntheticModel model = random_graph(random, static_cast<int>(draw(random, 1, 5)));
    for (SyntheticOp& op : model.ops) op.statistics = 0;
    model.micro_batches = seed % 3 == 0 ? 3 : 1;
    expect_holds(model);
  }
}

TEST(StepBound, HoldsForRandomStacks) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    SyntheticModel model = random_stack(random, {.layers = 2, .ops = 3});
    for (SyntheticOp& op : model.ops) op.statistics = 0;
    expect_holds(model);
  }
}

}  // namespace
}  // namespace spool::testing
