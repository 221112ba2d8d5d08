// runs: numbers
// Bound and plan of a transformer block compared with its fastest schedule.

#include "tests/planner/search/integer_program.h"

#include <gtest/gtest.h>

#include "spool/models/steps/step_planner.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

TEST(TransformerBlock, PlanIsNearTheFastestScheduleAndBoundBelow) {
  if (!has_integer_solver()) GTEST_SKIP() << "there is no solver here (Debian: coinor-cbc)";
  const TransformerSizes sizes{
      .layers = 1, .channels = 64, .vocabulary = 64, .batch = 4, .tokens = 64};
  const SearchedStep step = searched_step(describe(sizes), cpu_machine());
  Search search(step, {.loss_rows = 0});
  const size_t min = search.smallest_budget(), max = search.keep_all_peak();
  for (size_t part = 0; part <= 4; ++part) {
    const size_t bytes = min + (max - min) / 4 * part;
    const auto optimum = fastest_step(step, bytes, Reads::late);
    if (!optimum) continue;  // it takes too long
    const SearchResult result = search.plan(bytes);
    EXPECT_LE(result.lower_bound, *optimum * (1 + 1e-6)) << bytes;
    EXPECT_GE(result.found.seconds, *optimum * (1 - 1e-6)) << bytes;
    // At the smallest budget a node's workspace decides, which plans control more coarsely.
    EXPECT_LE(result.found.seconds, *optimum * (part == 0 ? 1.02 : 1.01)) << bytes;
  }
}

}  // namespace
}  // namespace spool::testing
