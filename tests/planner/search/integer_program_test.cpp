// runs: numbers
// Bound and plan against the fastest schedule, which an integer program finds.

#include "tests/planner/search/integer_program.h"

#include <gtest/gtest.h>

#include <cmath>

#include "spool/planner/search/bound/step_bound.h"
#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

class IntegerProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_integer_solver()) GTEST_SKIP() << "there is no solver here (Debian: coinor-cbc)";
  }
};

// A chain whose ops save their inputs, each of one second and one granule.
SyntheticModel chain(int ops) {
  SyntheticModel model;
  for (int i = 0; i < ops; ++i) model.ops.push_back({.inputs = {i - 1}});
  return model;
}

// The seconds of recomputation with this many granules less than keeping all takes.
TEST_F(IntegerProgram, FindsTheOptimaOfUnitChains) {
  const std::vector<std::vector<double>> known{{0, 1}, {0, 1, 3}, {0, 1, 2, 6}, {0, 1, 2, 3, 10}};
  for (size_t i = 0; i < known.size(); ++i) {
    const int n = static_cast<int>(i) + 2;
    const SearchedStep step = searched_step(chain(n + 1));
    const RehearsedStep kept = step.rehearse({}, std::nullopt, {.survey = true});
    size_t bytes = kept.survey.peak()->live;
    for (const double extra : known[i]) {
      const auto optimum = fastest_step(step, bytes, Reads::first);
      ASSERT_TRUE(optimum);
      EXPECT_NEAR(*optimum - kept.report.seconds, extra, 1e-6) << n << " ops, " << bytes;
      bytes -= Arena::granule;
    }
    EXPECT_TRUE(std::isinf(fastest_step(step, bytes, Reads::first).value_or(0)));
  }
}

// How often a search finds the optimum.
struct Found {
  int budgets = 0, optima = 0;
  double worst = 1;
};

void compare(const SearchedStep& step, int64_t micro_batches, Found& found) {
  const MeasuredSegments m = measure_segments(step, {});
  StepBound bound(m, micro_batches, /*bytes_per_second=*/0);
  Search search(step, {});
  const size_t min = search.smallest_budget(), max = search.keep_all_peak();
  for (size_t part = 0; part <= 4; ++part) {
    const size_t bytes = min + (max - min) / 4 * part;
    const auto optimum = fastest_step(step, bytes, Reads::first);
    if (!optimum) continue;  // it takes too long
    const SearchResult result = search.plan(bytes);
    EXPECT_LE(bound.seconds_within(bytes), *optimum * (1 + 1e-6)) << bytes;
    EXPECT_LE(result.lower_bound, *optimum * (1 + 1e-6)) << bytes;
    EXPECT_GE(result.found.seconds, *optimum * (1 - 1e-6)) << bytes;
    ++found.budgets;
    if (result.found.seconds <= *optimum * (1 + 1e-6)) ++found.optima;
    found.worst = std::max(found.worst, result.found.seconds / *optimum);
  }
}

TEST_F(IntegerProgram, LiesBetweenBoundAndPlanOfRandomBlocks) {
  Found found;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const int layers = seed % 2 == 0 ? 1 : 2;
    const SyntheticModel model = random_stack(random, {.layers = layers, .ops = 6 / layers});
    compare(searched_step(model), /*micro_batches=*/1, found);
  }
  EXPECT_GE(found.optima, found.budgets / 10 * 9) << "the worst takes " << found.worst << " x";
}

}  // namespace
}  // namespace spool::testing
