// runs: numbers
// The search for the plan of a step: a run takes what is foretold, and no simple policy is faster
// at the same bytes.

#include "spool/models/steps/step_planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "spool/planner/chunks.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "spool/planner/search/bound/step_bound.h"
#include "spool/planner/search/measured_options.h"
#include "spool/runtime/random.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr double one_level = 1.002;  // the ladder of budgets

std::vector<size_t> budgets_of(Search& search, int count) {
  const auto min = static_cast<double>(search.smallest_budget());
  const double max = 1.02 * static_cast<double>(search.keep_all_peak());
  std::vector<size_t> budgets;
  for (int i = 0; i < count; ++i) {
    budgets.push_back(static_cast<size_t>(min + (max - min) * i / (count - 1)));
  }
  return budgets;
}

// The plan that keeps all in the same chunks.
Plan keep_all(const Plan& plan) {
  Plan kept{.chunks = plan.chunks};
  for (const Region& r : plan.regions) {
    if (r.chunks > 1) kept.regions.push_back(r);
  }
  return kept;
}

// Which features some plans use.
struct Uses {
  bool offloading = false, streaming = false, regions = false;
};

// Runs the plans of several budgets on the cpu, in arenas of the foretold peak; returns which
// features any of them uses.
Uses expect_as_foretold(const TransformerSizes& sizes, const StepConfig& config,
                        Levers levers = {}) {
  Search search(searched_step(describe(sizes, config), cpu_machine()), std::move(levers));
  constexpr size_t plenty = size_t{256} << 20;
  Uses uses;
  for (const size_t budget : budgets_of(search, 5)) {
    SCOPED_TRACE(sentence("budget ", budget, ", smallest ", search.smallest_budget()));
    const SearchResult result = search.plan(budget);
    EXPECT_TRUE(result.fits);
    const FoundPlan& found = result.found;
    EXPECT_LE(found.peak, budget);
    const TransformerRun run = run_transformer(
        sizes, config, {.step = found.plan, .host_bytes = found.host_bytes, .layout = found.layout},
        found.peak);
    EXPECT_EQ(run.peak, found.peak);
    const TransformerRun kept =
        run_transformer(sizes, config, {.step = keep_all(found.plan)}, plenty);
    EXPECT_EQ(run.numbers, kept.numbers);
    uses.offloading |= offloads(found.plan);
    uses.streaming |= found.plan.optimizer_state == OptimizerState::streamed;
    uses.regions |= !nodes_in_chunks(found.plan).empty();
  }
  return uses;
}

TEST(StepPlanner, TakesWhatItForetellsAndChangesNoNumber) {
  expect_as_foretold({}, {});
  expect_as_foretold({.layers = 4, .channels = 64, .tokens = 48}, {.accumulate = 3});
  expect_as_foretold({.layers = 3, .batch = 8, .tokens = 64}, {.accumulate = 2});
}

TEST(StepPlanner, ReplaysDropoutExactly) {
  expect_as_foretold({.layers = 3, .dropout = 0.2f}, {});
  expect_as_foretold({.layers = 2, .dropout = 0.5f}, {.accumulate = 3});
}

TEST(StepPlanner, RunsTheChunksItIsGiven) {
  for (const int64_t rows : {1, 7, 32, 1000}) {
    SCOPED_TRACE(sentence(rows, " rows"));
    expect_as_foretold({}, {}, {.loss_rows = rows});
  }
}

TEST(StepPlanner, RunsRegionsInChunksAsForetold) {
  const TransformerSizes sizes{.layers = 4, .channels = 64, .batch = 8, .tokens = 48};
  EXPECT_TRUE(expect_as_foretold(sizes, {.accumulate = 2}, {.regions = true}).regions);
  EXPECT_TRUE(expect_as_foretold({.layers = 3, .batch = 4, .dropout = 0.2f}, {}, {.regions = true})
                  .regions);
  Levers all{.regions = true, .state_share = true, .offload_to = OffloadTarget::host};
  EXPECT_TRUE(expect_as_foretold(sizes, {}, all).regions);
}

// Regions are an option among others: where they do not pay, they are not chosen.
TEST(StepPlanner, RegionsLowerTheSmallestBudgetAndSlowNoOther) {
  const SearchedStep step =
      searched_step(describe(large_batch_of_124m, {.dtype = DType::bf16}), *named_machine("h200"));
  Search without(step, {}), with(step, {.regions = true});
  const auto min = static_cast<double>(without.smallest_budget());
  EXPECT_LT(static_cast<double>(with.smallest_budget()), 0.85 * min);
  for (const size_t budget : budgets_of(without, 12)) {
    EXPECT_LE(with.plan(budget).found.seconds, 1.002 * without.plan(budget).found.seconds)
        << budget;
  }
}

Region random_region(Random& random, const Program& program, const Segment& layer) {
  const std::vector<CuttableNodes> spans = find_regions(program, layer.first, layer.last);
  while (true) {
    const CuttableNodes& span = spans[random.next() % spans.size()];
    const int64_t chunks = std::min<int64_t>(span.extent, 2 << random.next() % 4);
    const auto region = chunk_region(program, span.first, span.last, span.extent / chunks);
    if (region) return *region;
  }
}

// For each layer a region in chunks, one of its segment's options, or keeping all.
Plan random_plan_of(Random& random, const MeasuredSegments& m) {
  Plan plan;
  plan.placement.assign(m.program->values.size(), Placement::keep);
  for (const Segment& s : m.segments) {
    if (s.candidates.empty() || chunkable_rows(*m.program, s) > 0) continue;
    if (random.next() % 2 == 0) {
      plan.regions.push_back(random_region(random, *m.program, s));
    } else if (random.next() % 3 > 0) {
      const auto options = recompute_options(*m.program, s);
      apply(options[random.next() % options.size()], *m.program, s, plan);
    }
  }
  return plan;
}

TEST(StepPlanner, TheBoundHoldsForPlansWithRegions) {
  for (const int64_t micro_batches : {1, 2}) {
    const SearchedStep step =
        searched_step(describe(sizes_of_124m, {.accumulate = micro_batches}), cpu_machine());
    const MeasuredSegments m = measure_segments(step, {.regions = true});
    StepBound bound(m, micro_batches, /*bytes_per_second=*/0);
    Random random(1);
    for (int i = 0; i < 60; ++i) {
      Plan plan = random_plan_of(random, m);
      const RehearsedStep rehearsed = step.rehearse(plan, std::nullopt, {.survey = true});
      const size_t live = rehearsed.survey.peak()->live;
      EXPECT_LE(bound.seconds_within(live), rehearsed.report.seconds * (1 + 1e-9)) << i;
    }
  }
}

TEST(StepPlanner, OffloadsValuesAndStreamsStateAsForetold) {
  Levers levers{.state_share = true, .offload_to = OffloadTarget::host};
  const TransformerSizes sizes{.layers = 6, .channels = 128, .batch = 4, .tokens = 128};
  const Uses uses = expect_as_foretold(sizes, {.accumulate = 2}, levers);
  EXPECT_TRUE(uses.offloading);
  EXPECT_TRUE(uses.streaming);
  levers.host_bytes = size_t{4} << 20;
  expect_as_foretold(sizes, {}, levers);
  Search search(searched_step(describe(sizes), cpu_machine()), levers);
  for (const size_t budget : budgets_of(search, 5)) {
    EXPECT_LE(search.plan(budget).found.host_bytes, levers.host_bytes) << budget;
  }
}

// A bound above the time of a found plan would be wrong.
TEST(StepPlanner, NoPlanIsFasterThanItsBoundAllows) {
  for (const int64_t micro_batches : {1, 4}) {
    const StepDescription step = describe(sizes_of_124m, {.accumulate = micro_batches});
    for (const double link : {2e9, 50e9}) {
      Machine machine = *named_machine("h200");
      machine.to_host_bytes_per_second = machine.from_host_bytes_per_second = link;
      const Levers levers{.state_share = true, .offload_to = OffloadTarget::host};
      Search search(searched_step(step, machine), levers);
      for (const size_t budget : budgets_of(search, 3)) {
        const SearchResult result = search.plan(budget);
        ASSERT_TRUE(result.fits) << budget;
        EXPECT_LE(result.found.peak, budget);
        EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9))
            << "budget " << budget << ", link " << link;
      }
    }
  }
}

TEST(StepPlanner, MeetsBudgetsOrRefusesThem) {
  const SearchedStep step = searched_step(describe(sizes_of_124m), cpu_machine());
  Search search(step, {});
  const size_t min = search.smallest_budget();
  double before = INFINITY;
  for (const size_t budget : budgets_of(search, 22)) {
    SCOPED_TRACE(sentence("budget ", budget, ", smallest ", min));
    const SearchResult result = search.plan(budget);
    ASSERT_TRUE(result.fits);
    const FoundPlan& found = result.found;
    EXPECT_LE(found.peak, budget);
    const RehearsedStep again = step.rehearse(found.plan, found.layout, {});
    EXPECT_EQ(again.report.memory.peak, found.peak);
    EXPECT_LE(found.seconds, before);
    EXPECT_LE(result.lower_bound, found.seconds);
    EXPECT_LE(result.lower_bound, result.keep_all_seconds * 1.5);
    before = found.seconds;
  }
  EXPECT_TRUE(Search(step, {}).plan(min).fits);
  const SearchResult refused = Search(step, {}).plan(min - Arena::granule);
  EXPECT_FALSE(refused.fits);
  EXPECT_EQ(refused.found.peak, min);
  EXPECT_FALSE(refused.found.binding.empty());
}

// The bound is near the plan from 1.02 times the smallest budget up.
TEST(StepPlanner, IsProvenToBeNearTheBest) {
  for (const int64_t micro_batches : {1, 3}) {
    const StepDescription step = describe(sizes_of_124m, {.accumulate = micro_batches});
    Search search(searched_step(step, cpu_machine()), {});
    for (const double times : {1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75}) {
      const auto min = static_cast<double>(search.smallest_budget());
      const SearchResult result = search.plan(static_cast<size_t>(times * min));
      EXPECT_LE(result.found.seconds, 1.009 * result.lower_bound)
          << times << " x smallest, " << micro_batches << " micro-batches";
    }
  }
}

TEST(StepPlanner, NoSimplePolicyIsFasterAtTheSameBytes) {
  const SearchedStep step = searched_step(describe(sizes_of_124m), cpu_machine());
  const Program program = step.rehearse_tape({}).program;
  Search search(step, {});
  std::set<SimpleRule> rules;
  for (const SimplePolicy& policy : simple_policies(step)) {
    rules.insert(policy.rule);
    for (const int64_t rows : {0, 256}) {
      SCOPED_TRACE(sentence(policy.name, ", chunks of ", rows));
      Plan plan = policy.plan;
      if (rows > 0) plan.chunks = chunk_rows(program, rows).chunks;
      const FoundPlan other = lay_out_plan(step, std::move(plan), rows);
      const auto budget = static_cast<size_t>(one_level * static_cast<double>(other.peak));
      const SearchResult result = search.plan(budget);
      EXPECT_TRUE(result.fits);
      EXPECT_LE(result.found.seconds, other.seconds * (1 + 1e-9));
      EXPECT_LE(search.plan(other.peak).lower_bound, other.seconds * (1 + 1e-9));
    }
  }
  EXPECT_EQ(rules.size(), enumerators<SimpleRule>().size() - 1);  // nothing is offloaded
}

// Consecutive equal layers that are treated alike count once.
size_t groups_of(const Plan& plan, const MeasuredSegments& m) {
  size_t groups = 0;
  std::vector<Placement> before;
  int kind = -1;
  for (const Segment& s : m.segments) {
    std::vector<Placement> placements;
    for (NodeId n = s.first; n <= s.last; ++n) {
      for (const ValueId v : m.program->nodes[n].outputs)
        placements.push_back(placement_of(plan, v));
    }
    if (s.kind != kind || placements != before) ++groups;
    kind = s.kind;
    before = placements;
  }
  return groups;
}

TEST(StepPlanner, EqualLayersAreTreatedAlikeInFewGroups) {
  const SearchedStep step = searched_step(describe(sizes_of_124m), cpu_machine());
  const MeasuredSegments m = measure_segments(step, {});
  Search search(step, {});
  std::set<int> kinds;
  for (const Segment& s : m.segments) kinds.insert(s.kind);
  for (const size_t budget : budgets_of(search, 3)) {
    EXPECT_LE(groups_of(search.plan(budget).found.plan, m), kinds.size() - 1 + 5);
  }
}

}  // namespace
}  // namespace spool::testing
