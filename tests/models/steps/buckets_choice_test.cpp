// runs: numbers
// Ranks exchange the fewest buckets at a time that fit and are nearly as fast as any number.

#include "spool/models/steps/exchange/buckets_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

// A large parameter has four buckets, which are complete at the same time.
constexpr TransformerSizes sizes{.layers = 4,
                                 .channels = 2048,
                                 .heads = 16,
                                 .vocabulary = 1000,
                                 .batch = 4,
                                 .tokens = 1024,
                                 .dtype = DType::bf16};

StepDescription on_ranks(int ranks) {
  return describe(sizes, {.dtype = DType::bf16, .accumulate = 4, .ranks = ranks});
}

// A machine whose ranks have a link of this speed between them.
Machine linked(double bytes_per_second) {
  Machine machine = *named_machine("h200");
  machine.mesh.link = {.seconds = 1e-6, .bytes_per_second = bytes_per_second};
  return machine;
}

PlannedSteps planned(const StepRequest& request, const Machine& machine, int ranks = 4) {
  return StepPlanner({on_ranks(ranks)}, {.steps = request}, machine).plan();
}

struct Costs {
  double seconds = 0;
  size_t peak = 0;
};

// Of keeping everything, with each number of buckets.
std::map<int, Costs> costs_on(const Machine& machine) {
  std::map<int, Costs> all;
  for (const int buckets : {2, 3, 4, 8}) {
    StepPlans plans{.step = plan_step(on_ranks(4), {}, machine)};
    plans.step.buckets_in_flight = buckets;
    plans.layout = lay_out_step(on_ranks(4), plans, machine);
    const Report report = foretell_step(on_ranks(4), plans, machine);
    all[buckets] = {report.seconds, report.memory.peak};
  }
  return all;
}

TEST(BucketsChoice, TakesTheFewestThatAreNearlyAsFastAsAny) {
  std::set<int> seen;
  for (double rate = 4e9; rate < 4e12; rate *= 1.5) {
    const Machine machine = linked(rate);
    double fastest = std::numeric_limits<double>::infinity();
    const std::map<int, Costs> all = costs_on(machine);
    for (const auto& [buckets, costs] : all) fastest = std::min(fastest, costs.seconds);
    int fewest = 8;
    for (const int buckets : {4, 3, 2}) {
      if (all.at(buckets).seconds <= 1.005 * fastest) fewest = buckets;
    }
    const PlannedSteps steps = planned({.policy = Policy{}}, machine);
    EXPECT_EQ(steps.plans.step.buckets_in_flight, fewest) << rate;
    EXPECT_EQ(steps.foretold.seconds, all.at(fewest).seconds) << rate;
    EXPECT_EQ(steps.foretold.memory.peak, all.at(fewest).peak) << rate;
    seen.insert(fewest);
  }
  EXPECT_GT(seen.size(), 1U);
  EXPECT_EQ(*seen.begin(), 2);
}

// A link by which eight are fastest.
Machine slow() {
  for (double rate = 4e9; rate < 4e12; rate *= 1.5) {
    const std::map<int, Costs> all = costs_on(linked(rate));
    if (all.at(8).seconds * 1.01 < all.at(2).seconds) return linked(rate);
  }
  ADD_FAILURE() << "no link is slow enough";
  return {};
}

TEST(BucketsChoice, TakesOnlyWhatFits) {
  const Machine machine = slow();
  const std::map<int, Costs> all = costs_on(machine);
  EXPECT_GT(planned({.policy = Policy{}}, machine).plans.step.buckets_in_flight, 2);
  for (const auto& [buckets, costs] : all) {
    const PlannedSteps steps = planned({.policy = Policy{}, .budget = costs.peak}, machine);
    EXPECT_FALSE(steps.refusal);
    EXPECT_LE(all.at(steps.plans.step.buckets_in_flight).peak, costs.peak) << buckets;
    EXPECT_LE(steps.foretold.memory.peak, costs.peak);
  }
  ASSERT_LT(all.at(2).peak, all.at(8).peak);
  const StepRequest two{.policy = Policy{}, .budget = all.at(2).peak};
  EXPECT_LT(planned(two, machine).plans.step.buckets_in_flight, 8);
}

// What is recomputed is chosen, and no chunks, which takes long.
StepRequest within(size_t budget) {
  return {.choose = Choices{.placement = true}, .budget = budget};
}

TEST(BucketsChoice, IsMadeInASearch) {
  const Machine machine = slow();
  const size_t min = StepPlanner({on_ranks(4)}, {.steps = within(0)}, machine).smallest_budget();
  const size_t max = costs_on(machine).at(8).peak;
  std::set<int> seen;
  for (size_t i = 0; i <= 4; ++i) {
    const size_t budget = min + (max - min) * i / 4;
    const PlannedSteps steps = planned(within(budget), machine);
    EXPECT_FALSE(steps.refusal) << budget;
    EXPECT_LE(steps.foretold.memory.peak, budget);
    StepRequest two = within(budget);
    two.buckets_in_flight = 2;
    EXPECT_LE(steps.foretold.seconds, 1.005 * planned(two, machine).foretold.seconds);
    seen.insert(steps.plans.step.buckets_in_flight);
  }
  EXPECT_GT(seen.size(), 1U);
}

TEST(BucketsChoice, KeepsTheNumberOfAGivenPlan) {
  const Machine machine = slow();
  Plan plan = plan_step(on_ranks(4), {}, machine);
  EXPECT_EQ(planned({.plan = plan}, machine).plans.step.buckets_in_flight, 2);
  plan.buckets_in_flight = 3;
  EXPECT_EQ(planned({.plan = plan}, machine).plans.step.buckets_in_flight, 3);
}

TEST(BucketsChoice, IsNotMadeWithoutOtherRanks) {
  const Machine machine = slow();
  for (const int ranks : {0, 1}) {
    const StepPlans plans = planned({.policy = Policy{}}, machine, ranks).plans;
    EXPECT_EQ(plans.step.buckets_in_flight, 0) << ranks;
  }
}

}  // namespace
}  // namespace spool::testing
