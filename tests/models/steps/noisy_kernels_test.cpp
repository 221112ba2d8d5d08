// runs: numbers
// Searches with a table of badly measured kernels, as on a busy machine: chunks may seem faster
// than the whole, and a kernel several times slower than it is.

#include <gtest/gtest.h>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/random.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{.layers = 4, .channels = 64, .batch = 8, .tokens = 48};

// The kernels of the plans of some budgets, without repetitions.
std::vector<KernelTime> kernels_of_plans(const StepDescription& step, const Levers& levers) {
  const Machine machine = cpu_machine();
  Search search(searched_step(step, machine), levers);
  const size_t min = search.smallest_budget(), max = search.keep_all_peak();
  std::vector<KernelTime> kernels;
  for (size_t i = 0; i <= 4; ++i) {
    const FoundPlan found = search.plan(min + (max - min) * i / 4).found;
    const auto more =
        rehearse_kernels(measurable_step(step, {.step = found.plan}), machine).launches;
    kernels.insert(kernels.end(), more.begin(), more.end());
  }
  return distinct(std::move(kernels));
}

// Each kernel takes between a third and three times its time.
Machine noisy_machine(std::vector<KernelTime> kernels, uint64_t seed) {
  Random random(seed, /*stream=*/0);
  for (KernelTime& k : kernels) k.seconds *= std::exp2(3.17 * (random.uniform() - 0.5));
  Machine machine = cpu_machine();
  machine.kernels = std::make_shared<KernelTimes>(std::move(kernels));
  return machine;
}

void expect_bounds_to_hold(const Levers& levers, uint64_t seeds, int64_t micro_batches = 1) {
  const StepDescription step = describe(sizes, {.accumulate = micro_batches});
  const std::vector<KernelTime> kernels = kernels_of_plans(step, levers);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Search search(searched_step(step, noisy_machine(kernels, seed)), levers);
    const size_t min = search.smallest_budget(), max = search.keep_all_peak();
    EXPECT_EQ(diff(Plan{}, search.keep_all_or_plan(max).found.plan), "");
    double before = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i <= 8; ++i) {
      SCOPED_TRACE(sentence("seed ", seed, ", budget ", i));
      const size_t budget = min + (max - min) * i / 8;
      const SearchResult result = search.plan(budget);
      ASSERT_TRUE(result.fits);
      EXPECT_LE(result.found.peak, budget);
      EXPECT_GT(result.lower_bound, 0);
      EXPECT_LE(result.lower_bound, result.found.seconds);
      EXPECT_LE(result.found.seconds, before);
      before = result.found.seconds;
    }
  }
}

TEST(NoisyKernels, NoPlanTakesLessThanItsBoundOrMoreThanThatOfASmallerBudget) {
  expect_bounds_to_hold({}, 6);
  expect_bounds_to_hold({.regions = true}, 12);
  const Levers all{.regions = true, .state_share = true, .offload_to = OffloadTarget::host};
  expect_bounds_to_hold(all, 3);
}

// The first micro-batch writes, with other kernels, the gradients that the others add to.
TEST(NoisyKernels, NoPlanOfSeveralMicroBatchesTakesLessThanItsBound) {
  for (const int64_t micro_batches : {2, 5}) {
    expect_bounds_to_hold({}, 6, micro_batches);
    expect_bounds_to_hold({.regions = true}, 4, micro_batches);
  }
}

}  // namespace
}  // namespace spool::testing
