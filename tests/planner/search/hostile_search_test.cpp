// runs: numbers
// Searches for steps unlike any model's, and for impossible budgets.

#include <gtest/gtest.h>

#include <limits>

#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

constexpr size_t endless = std::numeric_limits<size_t>::max();

SyntheticModel two_layers() {
  SyntheticModel model;
  for (int i = 0; i < 6; ++i) {
    model.ops.push_back({.inputs = {i - 1}, .output = 3 + i % 3, .layer = i / 3});
  }
  return model;
}

// Every budget has an answer, with a bound from the smallest on; the largest keeps all.
void expect_answers(const SyntheticModel& model, const Levers& levers = {}) {
  Search search(searched_step(model), levers);
  const size_t min = search.smallest_budget();
  for (const size_t budget : {size_t{0}, size_t{1}, Arena::granule, min - 1, min,
                              search.keep_all_peak(), endless / 2, endless - 1, endless}) {
    SCOPED_TRACE(sentence("budget ", budget));
    const SearchResult result = search.plan(budget);
    EXPECT_EQ(result.fits, budget >= min);
    EXPECT_LE(result.found.peak, std::max(budget, min));
    EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9));
    if (result.fits && result.found.seconds > 0) {
      EXPECT_GT(result.lower_bound, 0);
    }
    EXPECT_FALSE(result.found.binding.empty());
  }
  const SearchResult all = search.plan(endless);
  EXPECT_EQ(all.found.seconds, all.keep_all_seconds);
  EXPECT_NEAR(all.lower_bound, all.keep_all_seconds, 1e-9 * all.keep_all_seconds);
}

TEST(HostileSearch, AnswersBudgetsOfNothingAndOfEverything) { expect_answers(two_layers()); }

TEST(HostileSearch, NothingCanBeRecomputed) {
  SyntheticModel model = two_layers();
  for (SyntheticOp& op : model.ops) op.is_recomputable = false;
  expect_answers(model);
  Search search(searched_step(model), {});
  EXPECT_EQ(search.smallest_budget(), search.keep_all_peak());
}

TEST(HostileSearch, NothingIsSaved) {
  SyntheticModel model = two_layers();
  for (SyntheticOp& op : model.ops) op.saves_inputs = false;
  expect_answers(model);
}

TEST(HostileSearch, NoOpButTheLoss) {
  expect_answers({.ops = {{.inputs = {-1}}}});
  SyntheticModel chunks{.ops = {{.inputs = {-1}, .scratch = 4096, .rows = 4096}}};
  expect_answers(chunks);
  Search search(searched_step(chunks), {});
  EXPECT_LT(search.smallest_budget(), search.keep_all_peak());
}

TEST(HostileSearch, OpsThatTakeNoTime) {
  SyntheticModel model = two_layers();
  for (SyntheticOp& op : model.ops) op.forward = op.backward = 0;
  expect_answers(model);
  model.update_seconds = 0;
  expect_answers(model);
}

TEST(HostileSearch, TheOptimizerNeedsMost) {
  SyntheticModel model = two_layers();
  model.update = 1000;
  expect_answers(model);
}

TEST(HostileSearch, OneScopeOfHundredsOfNodes) {
  SyntheticModel model;
  for (int i = 0; i < 500; ++i) {
    model.ops.push_back({.inputs = {i - 1}, .output = 1 + i % 5, .layer = 0});
  }
  expect_answers(model);
}

TEST(HostileSearch, AChainOfThousandsOfNodes) {
  SyntheticModel model;
  for (int i = 0; i < 2000; ++i) model.ops.push_back({.inputs = {i - 1}});
  Search search(searched_step(model), {});
  const size_t min = search.smallest_budget(), max = search.keep_all_peak();
  EXPECT_LT(min, max / 2);
  const SearchResult result = search.plan((min + max) / 2);
  EXPECT_TRUE(result.fits);
  EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9));
}

TEST(HostileSearch, RowsOfTheLossAreAsGiven) {
  SyntheticModel model = two_layers();
  model.ops.push_back({.inputs = {5}, .scratch = 512, .is_recomputable = false, .rows = 1024});
  for (const int64_t rows : {0, 1, 100, 1024, 1025, 1'000'000}) {
    SCOPED_TRACE(sentence(rows, " rows"));
    expect_answers(model, {.loss_rows = rows});
    Search search(searched_step(model), {.loss_rows = rows});
    for (const size_t budget : {search.smallest_budget(), endless}) {
      EXPECT_EQ(search.plan(budget).found.loss_rows, rows);
    }
  }
}

TEST(HostileSearch, PlacementIsAsGiven) {
  SyntheticModel model = two_layers();
  model.ops.push_back({.inputs = {5}, .scratch = 512, .is_recomputable = false, .rows = 1024});
  const Program program = program_of(model);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const Plan fixed = random_plan(random, program);
    const Levers levers{.placement = false, .fixed = fixed};
    expect_answers(model, levers);
    Search search(searched_step(model), levers);
    for (const size_t budget : {search.smallest_budget(), endless}) {
      EXPECT_EQ(search.plan(budget).found.plan.placement, fixed.placement);
    }
  }
}

TEST(HostileSearch, TheRestOfTheRunNeedsMore) {
  SyntheticModel model = two_layers();
  model.ops.push_back({.inputs = {5}, .scratch = 512, .is_recomputable = false, .rows = 1024});
  SearchedStep step = searched_step(model);
  const size_t alone = Search(step, {}).keep_all_peak();
  step.other_peak = [&](const Plan&) { return 2 * alone; };
  Search search(step, {});
  EXPECT_EQ(search.keep_all_peak(), 2 * alone);
  EXPECT_EQ(search.smallest_budget(), 2 * alone);
  EXPECT_FALSE(search.plan(2 * alone - Arena::granule).fits);
  const SearchResult result = search.plan(2 * alone);
  EXPECT_TRUE(result.fits);
  EXPECT_LE(result.lower_bound, result.found.seconds);
}

// Ops of no bytes or no time, of much more than all others, and that cannot run again.
SyntheticModel hostile_model(Random& random) {
  SyntheticModel model = random_stack(random, {.layers = static_cast<int>(draw(random, 1, 5)),
                                               .ops = static_cast<int>(draw(random, 1, 4)),
                                               .rows = draw_bool(random) ? 4096 : 1});
  for (SyntheticOp& op : model.ops) {
    if (draw_bool(random, 0.1)) op.forward = 0;
    if (draw_bool(random, 0.1)) op.backward = 0;
    if (draw_bool(random, 0.1)) op.forward = 1000;
    if (draw_bool(random, 0.1)) op.scratch = draw(random, 100, 1000);
    if (draw_bool(random, 0.1)) op.backward_scratch = draw(random, 100, 1000);
    if (draw_bool(random, 0.1)) op.is_recomputable = false;
  }
  model.micro_batches = draw(random, 1, 4);
  return model;
}

// The bound of a budget is below the time of each plan that it holds, found or drawn.
TEST(HostileSearch, EachBudgetFromTheSmallestOnHasABound) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const SyntheticModel model = hostile_model(random);
    const SearchedStep step = searched_step(model);
    Search search(step, {});
    const size_t min = search.smallest_budget(), max = search.keep_all_peak();
    double fastest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i <= 6; ++i) {
      const SearchResult result = search.plan(min + (max - min) * i / 6);
      ASSERT_TRUE(result.fits) << i;
      fastest = std::min(fastest, result.found.seconds);
      EXPECT_GT(result.lower_bound, 0) << i;
      EXPECT_LE(result.lower_bound, fastest * (1 + 1e-9)) << i;
    }
    const Program program = program_of(model);
    for (int i = 0; i < 8; ++i) {
      const LaidOut plan = laid_out(step, random_plan(random, program));
      EXPECT_LE(search.plan(plan.peak).lower_bound, plan.seconds * (1 + 1e-9)) << plan.peak;
    }
  }
}

}  // namespace
}  // namespace spool::testing
