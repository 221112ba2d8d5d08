// runs: numbers
// The parts of attention's backward on cuda follow the memory that steps begin with, layer by
// layer, and steps that resume keep them.

#include "spool/models/steps/chunks/parts_choice.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes long_rows{
    .layers = 4, .channels = 256, .heads = 4, .batch = 2, .tokens = 4096, .dtype = DType::bf16};
constexpr int own = 2 * 4 + 1;  // more parts than there are key heads: Spool's kernels

const Machine& h200() {
  static const Machine machine = *named_machine("h200");
  return machine;
}

PlannedSteps planned(const StepRequest& request, const Machine& machine = h200()) {
  return StepPlanner({describe(long_rows)}, {.steps = request}, machine).plan();
}

// What is recomputed is chosen, and no chunks, which takes long.
StepRequest within(size_t budget) {
  return {.choose = Choices{.placement = true}, .budget = budget};
}

std::vector<int> parts_of(const PlannedSteps& steps) {
  std::vector<int> all;
  for (const NodesInChunks& n : parts_in(steps.chunks.nodes)) {
    all.push_back(n.chunks);
    EXPECT_EQ(steps.plans.step.chunks.value_or(n.first, 1), n.chunks);
  }
  return all;
}

size_t smallest_budget() {
  return StepPlanner({describe(long_rows)}, {.steps = within(0)}, h200()).smallest_budget();
}

TEST(PartsChoice, IsOnePartWhereMemoryIsPlenty) {
  EXPECT_EQ(parts_of(planned({})), std::vector<int>(4, 1));
  EXPECT_EQ(parts_of(planned({.policy = Policy{.norms = true}})), std::vector<int>(4, 1));
}

// All other values are freed as backward goes from the last layer to the first.
TEST(PartsChoice, FollowsTheBudgetLayerByLayer) {
  const size_t min = smallest_budget(), max = planned({}).foretold.memory.peak;
  std::set<std::vector<int>> seen;
  double before = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 8; ++i) {
    const size_t budget = min + (max - min) / 8 * static_cast<size_t>(i);
    SCOPED_TRACE(sentence("budget ", budget));
    const PlannedSteps steps = planned(within(budget));
    ASSERT_FALSE(steps.refusal);
    EXPECT_LE(steps.foretold.memory.peak, budget);
    EXPECT_LE(steps.search->lower_bound, steps.foretold.seconds);
    EXPECT_LE(steps.foretold.seconds, 1.02 * before);
    before = steps.foretold.seconds;
    const std::vector<int> parts = parts_of(steps);
    ASSERT_EQ(parts.size(), 4U);
    EXPECT_LE(parts.front(), parts.back());
    seen.insert(parts);
  }
  const auto has_both = [](const std::vector<int>& p) {
    return p.front() < own && p.back() == own;
  };
  EXPECT_GT(seen.size(), 2U);
  EXPECT_TRUE(std::ranges::any_of(seen, has_both));
}

// A policy that is set by hand gets the parts that its memory has room for, too.
TEST(PartsChoice, FollowsTheBudgetOfAPolicy) {
  const StepRequest free{.policy = Policy{}};
  const PlannedSteps whole = planned(free);
  StepRequest less = free;
  less.budget = whole.foretold.memory.peak - 1;
  const PlannedSteps parts = planned(less);
  EXPECT_FALSE(parts.refusal);
  EXPECT_LE(parts.foretold.memory.peak, less.budget);
  EXPECT_NE(parts_of(parts), parts_of(whole));
}

TEST(PartsChoice, DoesNotFollowTheClock) {
  const size_t min = smallest_budget(), budget = min + min / 2;
  Machine other = h200();
  other.bf16_flops *= 7;
  other.bytes_per_second /= 3;
  EXPECT_EQ(parts_of(planned(within(budget), other)), parts_of(planned(within(budget))));
}

TEST(PartsChoice, IsKeptUnderHalfOrTwiceTheBudget) {
  const size_t min = smallest_budget(), first = planned({}).foretold.memory.peak / 2 + min / 2;
  const PlannedSteps begun = planned(within(first));
  for (const size_t budget : {first / 2, 2 * first}) {
    SCOPED_TRACE(sentence("budget ", budget));
    const PlannedSteps resumed = planned({.policy = with_chunks({}, begun.chunks),
                                          .choose = Choices{.placement = true},
                                          .budget = budget});
    EXPECT_EQ(parts_of(resumed), parts_of(begun));
    EXPECT_EQ(resumed.plans.step.chunks, begun.plans.step.chunks);
    EXPECT_EQ(resumed.refusal.has_value(), resumed.foretold.memory.peak > budget);
  }
  EXPECT_NE(parts_of(planned(within(min))), parts_of(begun));
  EXPECT_NE(parts_of(planned(within(2 * first))), parts_of(begun));
  const PlannedSteps by_plan = planned({.plan = begun.plans.step, .budget = first});
  EXPECT_EQ(parts_of(by_plan), parts_of(begun));
}

TEST(PartsChoice, IsOfCudnnAlone) {
  Machine without = h200();
  without.architecture = CudaArchitecture{.fused_attention = false};
  for (const Machine& machine : {without, cpu_machine()}) {
    EXPECT_FALSE(PartsChoice(describe(long_rows), machine));
    EXPECT_TRUE(planned({}, machine).chunks.nodes.empty());
  }
  TransformerSizes in_f32 = long_rows;
  in_f32.dtype = DType::f32;
  EXPECT_FALSE(PartsChoice(describe(in_f32), h200()));
}

}  // namespace
}  // namespace spool::testing
