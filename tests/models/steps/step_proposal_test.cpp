// runs: numbers, slow
// Plans that offload values and stream the optimizer's state: proposals are accurate, so that a
// search rehearses few plans.

#include <gtest/gtest.h>

#include <cmath>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/search/proposal.h"
#include "spool/planner/search/trials.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

SearchedStep step_on_h200(int64_t micro_batches = 1, double link = 50e9) {
  const StepConfig config{.dtype = DType::bf16, .accumulate = micro_batches};
  Machine machine = *named_machine("h200");
  machine.to_host_bytes_per_second = machine.from_host_bytes_per_second = link;
  return searched_step(describe(large_batch_of_124m, config), machine);
}

const Levers all_levers{.state_share = true, .offload_to = OffloadTarget::host};

// From a budget that only such plans meet to one that keeps nearly all.
std::vector<size_t> budgets_of(const SearchedStep& step, int count) {
  Search search(step, {});
  const auto min = 0.6 * static_cast<double>(search.smallest_budget());
  const auto max = static_cast<double>(search.keep_all_peak());
  std::vector<size_t> budgets;
  for (int i = 0; i < count; ++i)
    budgets.push_back(static_cast<size_t>(min * std::pow(max / min, 1.0 * i / count)));
  return budgets;
}

TEST(StepProposal, ComesTrue) {
  for (const int64_t micro_batches : {1, 3}) {
    const SearchedStep step = step_on_h200(micro_batches);
    const MeasuredSegments measured = measure_segments(step, all_levers);
    Proposer proposer(step, measured, all_levers);
    Trials trials(step);
    for (const size_t bytes : budgets_of(step, 12)) {
      SCOPED_TRACE(sentence(bytes, " bytes, ", micro_batches, " micro-batches"));
      const auto proposal =
          proposer.fastest({.step = bytes, .run = bytes, .host = MetaStream::unlimited});
      ASSERT_TRUE(proposal);
      const int64_t rows = measured.rows[proposal->choice.row_choice];
      const FoundPlan& found = trials.of(proposer.plan_of(*proposal), rows).found;
      EXPECT_NEAR(found.seconds, proposal->seconds, 0.005 * found.seconds);
      EXPECT_LE(static_cast<double>(found.peak), 1.01 * static_cast<double>(bytes))
          << found.binding;
    }
  }
}

TEST(StepProposal, OffloadsOverLinksOfAnyRate) {
  const size_t budget = budgets_of(step_on_h200(), 4)[2];
  Levers offloading;
  offloading.offload_to = OffloadTarget::host;
  double before = INFINITY;
  for (const double link : {5e9, 5e10, 1e12, 1e30}) {
    SCOPED_TRACE(sentence(link, " bytes a second"));
    const SearchedStep step = step_on_h200(1, link);
    const SearchResult result = Search(step, offloading).plan(budget);
    const double without = Search(step, {}).plan(budget).found.seconds;
    ASSERT_TRUE(result.fits);
    EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9));
    EXPECT_LE(result.found.seconds, without);
    if (link <= 1e12) {
      EXPECT_LT(result.found.seconds, before);
    }
    before = result.found.seconds;
  }
}

TEST(StepProposal, LeavesFewPlansToRehearse) {
  const SearchedStep step = step_on_h200();
  const int measuring = measure_segments(step, all_levers).rehearsals;
  for (const size_t budget : budgets_of(step, 6)) {
    EXPECT_LE(Search(step, all_levers).plan(budget).rehearsals, 2 * measuring + 350) << budget;
  }
}

TEST(StepProposal, MoreMemoryIsNeverSlower) {
  const SearchedStep step = step_on_h200();
  Search search(step, all_levers);
  double before = INFINITY;
  for (const size_t budget : budgets_of(step, 40)) {
    const SearchResult result = search.plan(budget);
    ASSERT_TRUE(result.fits) << budget;
    EXPECT_LE(result.found.peak, budget);
    EXPECT_LE(result.found.seconds, before) << budget;
    EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9)) << budget;
    before = result.found.seconds;
  }
}

TEST(StepProposal, DoesNotDependOnWhatWasAskedBefore) {
  const SearchedStep step = step_on_h200();
  std::vector<size_t> budgets = budgets_of(step, 5);
  Search rising(step, all_levers), falling(step, all_levers);
  for (const size_t budget : budgets) rising.plan(budget);
  for (size_t i = budgets.size(); i-- > 0;) falling.plan(budgets[i]);
  for (const size_t budget : budgets) {
    const FoundPlan fresh = Search(step, all_levers).plan(budget).found;
    EXPECT_TRUE(rising.plan(budget).found.plan == fresh.plan) << budget;
    EXPECT_TRUE(falling.plan(budget).found.plan == fresh.plan) << budget;
  }
}

}  // namespace
}  // namespace spool::testing
