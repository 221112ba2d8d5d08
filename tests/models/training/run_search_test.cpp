// runs: numbers
// Runs that are searched for a budget, and their reports in JSON: what they take, what they
// compute, and what is refused.

#include "spool/models/training/run_search.h"
#include "spool/models/families/gpt2.h"

#include <nlohmann/json.hpp>

#include "spool/models/steps/step_kernels.h"
#include "spool/models/training/faster_plan.h"
#include "spool/models/training/plan_report.h"
#include "spool/planner/machine.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_cores{.architecture = CpuArchitecture{.threads = 2}};

// Large enough for chunks of the loss.
TrainingConfig chunkable() {
  TrainingConfig config = small();
  config.model =
      Gpt2Config{.layers = 4, .heads = 2, .channels = 32, .context = 64, .vocabulary = 600};
  config.batch = 8;
  config.seq = 64;
  config.steps = 2;
  return config;
}

RunRequest choosing(const Choices& choose = {.placement = true, .loss_chunk = true}) {
  return {.choose = choose, .sample = sample};
}

std::vector<KernelTime> kernels_of(const PlannedRun& run) {
  const StepDescription step = describe_step(run.config);
  return distinct(rehearse_kernels(step, StepPlans{run.plans}, two_cores).launches);
}

// Evenly spread, from the smallest to the peak of keeping everything.
std::vector<size_t> budgets_of(RunSearch& search) {
  const size_t least = search.smallest_budget(), most = search.keep_all_peak();
  return {least, least + (most - least) / 3, least + (most - least) / 3 * 2, most};
}

TEST(RunSearch, MeetsEachBudgetWithTheLossesOfKeepingAll) {
  for (const int64_t accumulate : {1, 4}) {
    TrainingConfig config = chunkable();
    config.accumulate = accumulate;
    RunSearch search(config, choosing(), two_cores);
    for (const size_t budget : budgets_of(search)) {
      const PlannedRun run = search.plan(budget);
      ASSERT_TRUE(run.search->fits);
      EXPECT_LE(run.foretold.memory.peak, budget);
      EXPECT_EQ(run.foretold.memory.peak, run.search->found.peak);
      EXPECT_NEAR(run.foretold.seconds, run.search->found.seconds, 1e-6 * run.foretold.seconds);
      EXPECT_LE(run.search->lower_bound, run.foretold.seconds * (1 + 1e-9));
      CpuStream stream(run.foretold.memory.peak, 2), plenty(size_t{256} << 20, 2);
      const Losses losses = train(run.config, run.plans, stream);
      EXPECT_EQ(losses.peak, run.foretold.memory.peak);
      EXPECT_EQ(losses, train(run.config, make_plans(run.config), plenty));
    }
  }
}

constexpr Choices with_regions{.placement = true, .loss_chunk = true, .regions = true};

// What is in chunks is part of the configuration, so the same run keeps all in the same chunks.
TEST(RunSearch, ChoosesNodesThatRunInChunks) {
  TrainingConfig config = chunkable();
  config.model = config.model.with("vocab", 64);
  RunSearch search(config, choosing(with_regions), two_cores);
  const PlannedRun run = search.plan(search.smallest_budget());
  ASSERT_FALSE(run.config.in_chunks.empty());
  EXPECT_LT(search.smallest_budget(), RunSearch(config, choosing(), two_cores).smallest_budget());
  EXPECT_GT(run.config.evaluation_rows().mlp, 0);
  CpuStream stream(run.foretold.memory.peak, 2), plenty(size_t{256} << 20, 2);
  const Losses losses = train(run.config, run.plans, stream);
  EXPECT_EQ(losses.peak, run.foretold.memory.peak);
  EXPECT_EQ(losses, train(run.config, make_plans(run.config), plenty));

  // A run that resumes keeps them in any budget.
  RunSearch resumed(run.config, choosing({.placement = true}), two_cores);
  const PlannedRun again = resumed.plan(search.keep_all_peak());
  EXPECT_EQ(again.config.in_chunks, run.config.in_chunks);
  EXPECT_EQ(nodes_in_chunks(again.plans.step), run.config.in_chunks);
  EXPECT_EQ(resumed.smallest_budget(), search.smallest_budget());
}

TEST(RunSearch, TakesTheNodesInChunksOfAPlan) {
  RunSearch search(chunkable(), choosing(with_regions), two_cores);
  const PlannedRun run = search.plan(search.smallest_budget());
  TrainingConfig config = run.config;
  config.in_chunks.clear();
  RunRequest request = choosing(with_regions);
  request.plan = run.plans.step;
  request.plan->fingerprints = step_fingerprints(run.config);
  EXPECT_EQ(plan_run(config, request, two_cores).config.in_chunks, run.config.in_chunks);
  request.choose.regions = false;  // as in a run that resumes
  expect_error(ErrorKind::invalid, {"the plan runs other nodes in chunks"},
               [&] { plan_run(config, request, two_cores); });
  config.in_chunks = {{.first = 1, .last = 10, .chunks = 2}};
  expect_error(ErrorKind::invalid, {"chosen for a budget", "configuration"},
               [&] { plan_run(config, request, two_cores); });
}

TEST(RunSearch, RefusesNodesThatCannotRunInSuchChunks) {
  TrainingConfig config = chunkable();
  const std::vector<NodesInChunks> hostile{{-1, 3, 2}, {3, 1, 2},  {0, 1 << 30, 2},
                                           {1, 10, 9}, {1, 10, 1}, {1, 10, -5}};
  for (const NodesInChunks& nodes : hostile) {
    config.in_chunks = {nodes};
    expect_error(ErrorKind::invalid, {"plan: nodes"}, [&] { make_plans(config); });
  }
  config.in_chunks = {{.first = 1, .last = 10, .chunks = 2}, {.first = 4, .last = 10, .chunks = 2}};
  expect_error(ErrorKind::invalid, {"plan: "}, [&] { plan_run(config, choosing({}), two_cores); });
}

TEST(RunSearch, FitsIntoItsSmallestBudgetAndNotIntoOneGranuleLess) {
  const TrainingConfig config = chunkable();
  RunRequest request = choosing(with_regions);
  RunSearch search(config, request, two_cores);
  const size_t least = search.smallest_budget();
  request.limit = MemoryLimit{.budget = least};
  EXPECT_FALSE(plan_run(config, request, two_cores).refusal);
  request.limit->budget = least - Arena::granule;
  const PlannedRun run = plan_run(config, request, two_cores);
  ASSERT_TRUE(run.refusal);
  EXPECT_EQ(run.refusal->kind(), ErrorKind::memory);
  EXPECT_EQ(run.refusal->fields().needed, least);
  EXPECT_EQ(run.refusal->fields().capacity, least - Arena::granule);
  EXPECT_EQ(plan_report(run, two_cores, "small")["minimum_budget_bytes"], least);
}

TEST(RunSearch, FixesWhatMayNotBeChosen) {
  TrainingConfig config = chunkable();
  config.loss_chunk = 100;
  config.mlp_chunk = 256;
  Policy norms;
  set_recompute(norms, "norms");
  RunRequest request = choosing({.placement = true});
  request.policy.optimizer_state = OptimizerState::streamed;
  RunSearch placing(config, request, two_cores);
  const PlannedRun placed = placing.plan(placing.smallest_budget());
  EXPECT_EQ(placed.config.loss_chunk, 100);
  EXPECT_EQ(placed.plans.step.optimizer_state, OptimizerState::streamed);
  EXPECT_EQ(std::ranges::count(placed.plans.step.regions, 2, &Region::chunks), 4);

  request = choosing({.loss_chunk = true});
  request.policy = norms;
  RunSearch chunking(config, request, two_cores);
  const PlannedRun chunked = chunking.plan(chunking.smallest_budget());
  EXPECT_GT(chunked.config.loss_chunk, 100);
  EXPECT_EQ(chunked.plans.step.placement, make_plans(config, norms).step.placement);
  EXPECT_GT(chunked.search->lower_bound, 0);
}

TEST(RunSearch, IsLeftOutWhereKeepingAllFitsWithoutABudget) {
  const TrainingConfig config = chunkable();
  RunRequest request = choosing();
  request.limit = MemoryLimit{};
  const PlannedRun kept = plan_run(config, request, two_cores);
  EXPECT_FALSE(kept.search);
  EXPECT_EQ(kept.plans.step, make_plans(config).step);
  request.limit->free = kept.foretold.memory.peak - Arena::granule;
  const PlannedRun chosen = plan_run(config, request, two_cores);
  ASSERT_TRUE(chosen.search);
  EXPECT_FALSE(chosen.refusal);
  EXPECT_LE(chosen.foretold.memory.peak, request.limit->free);
  EXPECT_EQ(chosen.budget, chosen.foretold.memory.peak);
  request.limit->free = 1000;
  EXPECT_TRUE(plan_run(config, request, two_cores).refusal);
}

// Chunks of the loss can be measured to be faster.
TEST(RunSearch, KeepsAllWithoutABudgetEvenWhereAnotherPlanIsFaster) {
  const TrainingConfig config = chunkable();
  RunSearch search(config, choosing(), two_cores);
  const PlannedRun kept = search.keep_all_or_plan(search.keep_all_peak());
  const PlannedRun smallest = search.plan(search.smallest_budget());
  ASSERT_GT(smallest.config.loss_chunk, 0);
  std::vector<KernelTime> kernels = kernels_of(smallest);
  for (KernelTime& k : kernels_of(kept)) {
    if (k.name == "cross_entropy") k.seconds *= 100;
    kernels.push_back(k);
  }
  kernels = distinct(std::move(kernels));
  const Machine slow = corrected_machine(two_cores, /*factor=*/1, kernels);
  RunSearch slower(config, choosing(), slow);
  EXPECT_GT(slower.plan(slower.keep_all_peak()).config.loss_chunk, 0);
  const PlannedRun still = slower.keep_all_or_plan(slower.keep_all_peak());
  EXPECT_EQ(still.config.loss_chunk, 0);
  EXPECT_EQ(still.plans.step, make_plans(config).step);
  EXPECT_EQ(still.foretold.memory.peak, slower.keep_all_peak());
  const PlannedRun less = slower.keep_all_or_plan(slower.keep_all_peak() - Arena::granule);
  EXPECT_TRUE(less.search->fits);
  EXPECT_LT(less.foretold.memory.peak, slower.keep_all_peak());
}

TEST(RunSearch, FixesAGivenPlan) {
  RunSearch search(chunkable(), choosing(), two_cores);
  const PlannedRun run = search.plan(search.smallest_budget());
  RunRequest request = choosing();
  request.plan = run.plans.step;
  request.plan->fingerprints = step_fingerprints(run.config);
  EXPECT_EQ(plan_run(run.config, request, two_cores).foretold.memory.peak,
            run.foretold.memory.peak);
  RunSearch fixed(run.config, request, two_cores);
  const PlannedRun found = fixed.plan(run.foretold.memory.peak);
  EXPECT_EQ(found.foretold.memory.peak, run.foretold.memory.peak);
  EXPECT_GT(found.search->keep_all_peak, run.foretold.memory.peak);
  expect_error(ErrorKind::invalid, {"the plan cuts the loss"},
               [&] { plan_run(chunkable(), request, two_cores); });
}

TEST(PlanReport, HasEveryNumber) {
  RunSearch search(chunkable(), choosing(), *named_machine("h100"));
  const PlannedRun run = search.plan(search.smallest_budget());
  const nlohmann::json report = plan_report(run, *named_machine("h100"), "small");
  EXPECT_EQ(report["format_version"], 2);
  EXPECT_EQ(report["machine"], "h100");
  EXPECT_EQ(report["budget_bytes"], run.limit);
  EXPECT_EQ(report["foretold_peak_bytes"], run.foretold.memory.peak);
  EXPECT_EQ(report["keep_all_peak_bytes"], search.keep_all_peak());
  EXPECT_DOUBLE_EQ(report["gap"].get<double>(), gap(run));
  EXPECT_EQ(report["loss_chunk"], run.config.loss_chunk);
  EXPECT_EQ(report["region_chunks"], nlohmann::json::array());
  EXPECT_EQ(report["host_bytes"], 0);
  EXPECT_EQ(report["state_bytes_on_device"], run.foretold.memory.at_peak_by[Purpose::optimizer]);
  const nlohmann::json first = report["layers"][0];
  EXPECT_EQ(first["ranges"][0][0], 0);
  EXPECT_TRUE(first["treatment"].get<std::string>().starts_with("recompute "));
  EXPECT_FALSE(report.contains("frontier"));
}

}  // namespace
}  // namespace spool::testing
