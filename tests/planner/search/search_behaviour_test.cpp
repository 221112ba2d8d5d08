// runs: numbers
// What a search promises, on abstract models: budgets are met or refused, plans are monotone and
// deterministic, and none of many others is faster at the same bytes.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "spool/planner/search/measured_options.h"
#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

constexpr double one_level = 1.002;  // the ladder of budgets

// Budgets from below the smallest possible one to above keeping everything.
std::vector<size_t> budgets_of(Search& search, int count) {
  const auto min = static_cast<double>(search.smallest_budget());
  const double max = 1.05 * static_cast<double>(search.keep_all_peak());
  std::vector<size_t> budgets{search.smallest_budget(), search.keep_all_peak()};
  for (int i = -3; i < count; ++i) {
    const double part = static_cast<double>(i) / (count - 1);
    budgets.push_back(static_cast<size_t>(std::max(min + (max - min) * part, 0.0)));
  }
  std::ranges::sort(budgets);
  return budgets;
}

SyntheticModel random_model(Random& random) {
  if (draw_bool(random, 0.3)) return random_graph(random, static_cast<int>(draw(random, 1, 24)));
  return random_stack(random, {.layers = static_cast<int>(draw(random, 1, 8)),
                               .ops = static_cast<int>(draw(random, 1, 6)),
                               .rows = draw_bool(random) ? 1024 : 1});
}

// Runs the test on several random models, of 1 and of 3 micro-batches.
template <class Test>
void for_each_model(uint64_t count, const Test& test) {
  for (uint64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    SyntheticModel model = random_model(random);
    model.micro_batches = seed % 4 == 3 ? 5 : seed % 4 == 2 ? 3 : 1;
    test(model, random);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SearchBehaviour, ABudgetIsMetOrRefused) {
  for_each_model(40, [](const SyntheticModel& model, Random&) {
    const SearchedStep step = searched_step(model);
    Search search(step, {});
    const size_t min = search.smallest_budget();
    for (const size_t budget : budgets_of(search, 20)) {
      SCOPED_TRACE(sentence("budget ", budget, ", smallest ", min));
      const SearchResult result = search.plan(budget);
      ASSERT_EQ(result.fits, budget >= min);
      const FoundPlan& found = result.found;
      EXPECT_LE(found.peak, std::max(budget, min));
      const RehearsedStep again = step.rehearse(found.plan, found.layout, {.survey = true});
      EXPECT_EQ(again.report.memory.peak, found.peak);
      EXPECT_NEAR(step_seconds(again, model.micro_batches), found.seconds, 1e-9 * found.seconds);
      EXPECT_FALSE(found.binding.empty());
      EXPECT_LE(result.lower_bound, found.seconds * (1 + 1e-9));
      EXPECT_TRUE(result.fits || found.peak == min);
    }
    EXPECT_FALSE(search.plan(min - Arena::granule).fits);
    EXPECT_TRUE(Search(step, {}).plan(min).fits);
  });
}

TEST(SearchBehaviour, MoreMemoryIsNeverSlower) {
  for_each_model(25, [](const SyntheticModel& model, Random&) {
    Search search(searched_step(model), {});
    double before = std::numeric_limits<double>::infinity(), bound_before = before;
    for (size_t budget = search.smallest_budget();
         budget < search.keep_all_peak() + 2 * Arena::granule; budget += Arena::granule) {
      const SearchResult result = search.plan(budget);
      ASSERT_TRUE(result.fits) << budget;
      EXPECT_LE(result.found.seconds, before) << budget;
      EXPECT_LE(result.lower_bound, bound_before * (1 + 1e-9)) << budget;
      before = result.found.seconds;
      bound_before = result.lower_bound;
    }
    EXPECT_EQ(before, search.plan(search.keep_all_peak()).keep_all_seconds);
  });
}

void expect_same(const SearchResult& a, const SearchResult& b) {
  EXPECT_EQ(a.fits, b.fits);
  EXPECT_TRUE(a.found.plan == b.found.plan);
  EXPECT_EQ(a.found.loss_rows, b.found.loss_rows);
  EXPECT_EQ(a.found.peak, b.found.peak);
  EXPECT_EQ(a.found.seconds, b.found.seconds);
  EXPECT_EQ(a.found.binding, b.found.binding);
  ASSERT_EQ(a.found.layout.has_value(), b.found.layout.has_value());
  EXPECT_TRUE(!a.found.layout || a.found.layout->offsets == b.found.layout->offsets);
  EXPECT_NEAR(a.lower_bound, b.lower_bound, 1e-9 * a.lower_bound);
}

TEST(SearchBehaviour, APlanDoesNotDependOnWhatWasAskedBefore) {
  for_each_model(12, [](const SyntheticModel& model, Random& random) {
    const SearchedStep step = searched_step(model);
    Search one(step, {});
    std::vector<size_t> budgets = budgets_of(one, 8);
    for (size_t i = budgets.size(); i-- > 1;) {
      std::swap(budgets[i], budgets[static_cast<size_t>(draw(random, 0, static_cast<int64_t>(i)))]);
    }
    Search other(step, {});
    for (const size_t budget : budgets) {
      SCOPED_TRACE(budget);
      const SearchResult fresh = Search(step, {}).plan(budget);
      expect_same(one.plan(budget), fresh);
      expect_same(other.plan(budget), fresh);
    }
  });
}

TEST(SearchBehaviour, TheUnitOfTimeDoesNotMatter) {
  for_each_model(12, [](const SyntheticModel& model, Random&) {
    Search search(searched_step(model), {});
    Search slower(searched_step(scaled(model, 1024, 1)), {});
    for (const size_t budget : budgets_of(search, 8)) {
      SCOPED_TRACE(budget);
      const SearchResult result = search.plan(budget), other = slower.plan(budget);
      EXPECT_TRUE(result.found.plan == other.found.plan);
      EXPECT_EQ(result.found.seconds * 1024, other.found.seconds);
      EXPECT_NEAR(result.lower_bound * 1024, other.lower_bound, 1e-6 * other.lower_bound);
    }
  });
}

// The same up to one step of the ladder, whose rungs are bytes.  Granules do not scale with the
// unit, so sizes below a granule become large.
TEST(SearchBehaviour, TheUnitOfBytesDoesNotMatter) {
  for_each_model(12, [](const SyntheticModel& model, Random&) {
    constexpr int64_t times = 512;
    Search search(searched_step(scaled(model, 1, 1024)), {});
    Search larger(searched_step(scaled(model, 1, 1024 * times)), {});
    const auto step_up = [](size_t bytes) {
      return static_cast<size_t>(one_level * static_cast<double>(bytes)) + Arena::granule;
    };
    for (const size_t budget : budgets_of(search, 8)) {
      SCOPED_TRACE(budget);
      const SearchResult result = search.plan(budget);
      const SearchResult above = larger.plan(times * step_up(budget));
      EXPECT_TRUE(above.fits || !result.fits);
      EXPECT_TRUE(!result.fits || above.found.seconds <= result.found.seconds);
      const SearchResult same = larger.plan(times * budget);
      const SearchResult more = search.plan(step_up(budget));
      EXPECT_TRUE(more.fits || !same.fits);
      EXPECT_TRUE(!same.fits || more.found.seconds <= same.found.seconds);
    }
  });
}

TEST(SearchBehaviour, NoRandomPlanIsFasterThanTheBound) {
  for_each_model(60, [](const SyntheticModel& model, Random& random) {
    const SearchedStep step = searched_step(model);
    const Program program = program_of(model);
    Search search(step, {});
    for (int i = 0; i < 25; ++i) {
      const LaidOut other = laid_out(step, random_plan(random, program));
      const SearchResult result = search.plan(other.peak);
      EXPECT_LE(result.lower_bound, other.seconds * (1 + 1e-9)) << i << ": " << other.peak;
    }
  });
}

Plan uniform_plan(const MeasuredSegments& m, size_t layers, size_t option) {
  std::vector<const SegmentOption*> chosen;
  static const SegmentOption keep;
  size_t changed = 0;
  for (const Segment& s : m.segments) {
    const auto& options = m.options[static_cast<size_t>(s.kind)].front();
    const bool is_layer = !s.candidates.empty() && changed < layers;
    if (is_layer) ++changed;
    chosen.push_back(is_layer ? &options[std::min(option, options.size() - 1)].option : &keep);
  }
  return plan_of(m, chosen, {});
}

// For each k, the plan that recomputes k of the values that a layer computes and no other saves:
// those that cost the fewest seconds per byte.
std::vector<Plan> plans_by_cost(const SyntheticModel& model, const MeasuredSegments& m) {
  const Program& program = *m.program;
  std::vector<std::pair<double, ValueId>> order;
  for (const Segment& s : m.segments) {
    for (const ValueId v : s.candidates) {
      const Value& value = program.values[v];
      const auto bytes = static_cast<double>(value.spec.nbytes());
      const double seconds = model.ops[static_cast<size_t>(value.producer)].forward;
      order.emplace_back(seconds / bytes, v);
    }
  }
  std::ranges::sort(order);
  std::vector<Plan> plans;
  Plan plan;
  plan.placement.assign(program.values.size(), Placement::keep);
  for (const auto& [cost, v] : order) {
    plan.placement[v] = Placement::recompute;
    plans.push_back(plan);
  }
  return plans;
}

// At the same bytes, up to one step of the ladder.
TEST(SearchBehaviour, NoSimplePolicyIsFasterAtTheSameBytes) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const SyntheticModel model = random_stack(random, {.layers = 6, .ops = 4});
    const SearchedStep step = searched_step(model);
    const MeasuredSegments m = measure_segments(step, {});
    Search search(step, {});
    const auto smallest = static_cast<double>(search.smallest_budget());
    std::vector<Plan> plans = plans_by_cost(model, m);
    for (size_t option = 0; option < 16; ++option) {
      for (size_t layers = 1; layers <= m.segments.size(); ++layers) {
        plans.push_back(uniform_plan(m, layers, option));
      }
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      const LaidOut other = laid_out(step, plans[i]);
      const auto budget =
          static_cast<size_t>(one_level * static_cast<double>(other.peak)) + 2 * Arena::granule;
      const SearchResult result = search.plan(budget);
      // Near the smallest budget, of some 100 granules, the best plan may have no layout.
      const bool is_tight = static_cast<double>(budget) < 1.05 * smallest;
      EXPECT_TRUE(result.fits || is_tight) << i << ": " << budget;
      EXPECT_TRUE(result.found.seconds <= other.seconds * (1 + 1e-9) || is_tight)
          << i << ": " << budget << ", " << result.found.seconds << " and " << other.seconds;
      EXPECT_LE(result.lower_bound, other.seconds * (1 + 1e-9)) << i << ": " << budget;
    }
  }
}

}  // namespace
}  // namespace spool::testing
