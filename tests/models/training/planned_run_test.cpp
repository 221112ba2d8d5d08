// runs: numbers
// Runs that a search plans for a budget, and their JSON reports: what they take, what they compute,
// and what is refused.

#include "spool/models/training/planned_run.h"
#include "spool/models/families/gpt2.h"

#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/faster_plan.h"
#include "spool/models/training/plan_report.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_cores{.architecture = this_processor(2)};

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
  return {.steps = {.choose = choose}};
}

PlannedRun plan_run(const TrainingConfig& config, const RunRequest& request) {
  return RunPlanner(config, request, sample, two_cores).plan();
}

std::vector<KernelTime> kernels_of(const PlannedRun& run) {
  const MeasurableWork step = measurable_step(describe_step(run.config), run.plans);
  return distinct(rehearse_kernels(step, two_cores).launches);
}

// Evenly spread from the smallest one to the peak of keeping everything.
std::vector<size_t> budgets_of(RunPlanner& search) {
  const size_t min = search.steps().smallest_budget(), max = search.steps().keep_all_peak();
  return {min, min + (max - min) / 3, min + (max - min) / 3 * 2, max};
}

TEST(PlannedRun, MeetsEachBudgetWithTheLossesOfKeepingAll) {
  for (const int64_t accumulate : {1, 4}) {
    TrainingConfig config = chunkable();
    config.accumulate = accumulate;
    RunPlanner search(config, choosing(), sample, two_cores);
    for (const size_t budget : budgets_of(search)) {
      const PlannedRun run = search.plan_within(budget);
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

// Chunks are part of the configuration, so the same run keeps all in the same chunks.
TEST(PlannedRun, ChoosesNodesThatRunInChunks) {
  TrainingConfig config = chunkable();
  config.model = config.model.with("vocab", 64);
  RunPlanner search(config, choosing(with_regions), sample, two_cores);
  const PlannedRun run = search.plan_within(search.steps().smallest_budget());
  ASSERT_FALSE(run.chunks.nodes.empty());
  EXPECT_LT(search.steps().smallest_budget(),
            RunPlanner(config, choosing(), sample, two_cores).steps().smallest_budget());
  CpuStream stream(run.foretold.memory.peak, 2), plenty(size_t{256} << 20, 2);
  const Losses losses = train(run.config, run.plans, stream);
  EXPECT_EQ(losses.peak, run.foretold.memory.peak);
  EXPECT_EQ(losses, train(run.config, make_plans(run.config), plenty));

  // A resumed run keeps them in any budget.
  RunPlanner resumed(run.config, choosing({.placement = true}), sample, two_cores);
  const PlannedRun again = resumed.plan_within(search.steps().keep_all_peak());
  EXPECT_EQ(again.chunks.nodes, run.chunks.nodes);
  EXPECT_EQ(nodes_in_chunks(again.plans.step), run.chunks.nodes);
  EXPECT_EQ(resumed.steps().smallest_budget(), search.steps().smallest_budget());
}

// A step's loss of one row leaves less than an evaluation of all rows takes.
TrainingConfig with_wide_vocabulary(DType dtype) {
  TrainingConfig config = small();
  config.model =
      Gpt2Config{.layers = 2, .heads = 2, .channels = 16, .context = 64, .vocabulary = 3000};
  config.batch = 4;
  config.seq = 64;
  config.steps = 1;
  config.dtype = dtype;
  return config;
}

TEST(PlannedRun, HasTheValidationLossOfAnyBudget) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TrainingConfig config = with_wide_vocabulary(dtype);
    RunPlanner search(config, choosing(with_regions), sample, two_cores);
    std::set<int64_t> rows;
    for (const size_t budget : budgets_of(search)) {
      const PlannedRun run = search.plan_within(budget);
      EXPECT_LE(run.foretold.memory.peak, budget);
      rows.insert(run.config.evaluation->loss);
      CpuStream stream(run.foretold.memory.peak, 2), plenty(size_t{256} << 20, 2);
      const Losses losses = train(run.config, run.plans, stream);
      EXPECT_EQ(losses.peak, run.foretold.memory.peak);
      TrainingConfig whole = run.config;
      whole.evaluation = ChunkRows{};
      EXPECT_EQ(losses.validation, train(whole, run.plans, plenty).validation) << budget;
    }
    EXPECT_GT(rows.size(), 1u);
    EXPECT_EQ(*rows.begin(), 0);
    EXPECT_GE(*std::next(rows.begin()), 16);
  }
}

TEST(PlannedRun, KeepsTheRowsOfItsEvaluationsWhileTheyFit) {
  TrainingConfig config = with_wide_vocabulary(DType::f32);
  RunPlanner search(config, choosing(), sample, two_cores);
  const PlannedRun smallest = search.plan_within(search.steps().smallest_budget());
  const ChunkRows few = *smallest.config.evaluation;
  ASSERT_GT(few.loss, 0);
  RunPlanner resumed(smallest.config, choosing({.placement = true}), sample, two_cores);
  EXPECT_EQ(resumed.plan_within(search.steps().keep_all_peak()).config.evaluation, few);
  EXPECT_EQ(resumed.plan().config.evaluation, few);

  config = smallest.config;
  config.evaluation = ChunkRows{};
  RunPlanner whole(config, choosing({.placement = true}), sample, two_cores);
  EXPECT_EQ(whole.plan_within(search.steps().smallest_budget()).config.evaluation, few);
  EXPECT_EQ(whole.plan_within(search.steps().keep_all_peak()).config.evaluation, ChunkRows{});
  const PlannedRun free = whole.plan();  // its steps alone need less
  EXPECT_EQ(free.config.evaluation, ChunkRows{});
  CpuStream stream(free.budget, 2);
  EXPECT_EQ(train(free.config, free.plans, stream).peak, free.budget);
}

TEST(PlannedRun, TakesTheNodesInChunksOfAPlan) {
  RunPlanner search(chunkable(), choosing(with_regions), sample, two_cores);
  const PlannedRun run = search.plan_within(search.steps().smallest_budget());
  TrainingConfig config = run.config;
  config.chunks.nodes.clear();
  RunRequest request = choosing(with_regions);
  request.steps.plan = run.plans.step;
  request.steps.plan->fingerprints = step_fingerprints(describe_step(run.config));
  EXPECT_EQ(plan_run(config, request).config.chunks.nodes, run.chunks.nodes);
  request.steps.choose->regions = false;  // as in a run that resumes
  expect_error(ErrorKind::invalid, {"the plan runs other nodes in chunks"},
               [&] { plan_run(config, request); });
  config.chunks.nodes = {{.first = 1, .last = 10, .chunks = 2}};
  expect_error(ErrorKind::invalid, {"chosen for a budget", "configuration"},
               [&] { plan_run(config, request); });
}

TEST(PlannedRun, RefusesNodesThatCannotRunInSuchChunks) {
  TrainingConfig config = chunkable();
  const std::vector<NodesInChunks> hostile{{-1, 3, 2}, {3, 1, 2},  {0, 1 << 30, 2},
                                           {1, 10, 9}, {1, 10, 1}, {1, 10, -5}};
  for (const NodesInChunks& nodes : hostile) {
    config.chunks.nodes = {nodes};
    expect_error(ErrorKind::invalid, {"plan: nodes"}, [&] { make_plans(config); });
  }
  config.chunks.nodes = {{.first = 1, .last = 10, .chunks = 2},
                         {.first = 4, .last = 10, .chunks = 2}};
  expect_error(ErrorKind::invalid, {"plan: "}, [&] { plan_run(config, choosing({})); });
}

TEST(PlannedRun, FitsIntoItsSmallestBudgetAndNotIntoOneGranuleLess) {
  const TrainingConfig config = chunkable();
  RunRequest request = choosing(with_regions);
  RunPlanner search(config, request, sample, two_cores);
  const size_t min = search.steps().smallest_budget();
  request.steps.budget = min;
  EXPECT_FALSE(plan_run(config, request).refusal);
  request.steps.budget = min - Arena::granule;
  const PlannedRun run = plan_run(config, request);
  ASSERT_TRUE(run.refusal);
  EXPECT_EQ(run.refusal->kind(), ErrorKind::memory);
  EXPECT_EQ(run.refusal->fields().needed, min);
  EXPECT_EQ(run.refusal->fields().capacity, min - Arena::granule);
  EXPECT_EQ(plan_report(run, two_cores, "small")["minimum_budget_bytes"], min);
}

TEST(PlannedRun, FixesWhatMayNotBeChosen) {
  TrainingConfig config = chunkable();
  config.chunks.loss_rows = 100;
  config.chunks.mlp_rows = 256;
  Policy norms;
  set_recompute(norms, "norms");
  RunRequest request = choosing({.placement = true});
  request.steps.policy = Policy{.optimizer_state = OptimizerState::streamed};
  RunPlanner placing(config, request, sample, two_cores);
  const PlannedRun placed = placing.plan_within(placing.steps().smallest_budget());
  EXPECT_EQ(placed.chunks.loss_rows, 100);
  EXPECT_EQ(placed.plans.step.optimizer_state, OptimizerState::streamed);
  EXPECT_EQ(std::ranges::count(placed.plans.step.regions, 2, &Region::chunks), 4);

  request = choosing({.loss_chunk = true});
  request.steps.policy = norms;
  RunPlanner chunking(config, request, sample, two_cores);
  const PlannedRun chunked = chunking.plan_within(chunking.steps().smallest_budget());
  EXPECT_NE(chunked.chunks.loss_rows, 100);
  EXPECT_EQ(chunked.plans.step.placement, make_plans(config, norms).step.placement);
  EXPECT_GT(chunked.search->lower_bound, 0);
}

TEST(PlannedRun, IsLeftOutWhereKeepingAllFitsWithoutABudget) {
  const TrainingConfig config = chunkable();
  RunRequest request = choosing();
  const PlannedRun kept = plan_run(config, request);
  EXPECT_FALSE(kept.search);
  EXPECT_EQ(kept.plans.step, make_plans(config).step);
  request.steps.free = kept.foretold.memory.peak - Arena::granule;
  const PlannedRun chosen = plan_run(config, request);
  ASSERT_TRUE(chosen.search);
  EXPECT_FALSE(chosen.refusal);
  EXPECT_LE(chosen.foretold.memory.peak, request.steps.free);
  EXPECT_EQ(chosen.budget, chosen.foretold.memory.peak);
  request.steps.free = 1000;
  EXPECT_TRUE(plan_run(config, request).refusal);
}

// Chunks of the loss can be measured to be faster.
TEST(PlannedRun, KeepsAllWithoutABudgetEvenWhereAnotherPlanIsFaster) {
  const TrainingConfig config = chunkable();
  RunPlanner search(config, choosing(), sample, two_cores);
  const auto within = [&](size_t free, const Machine& machine) {
    RunRequest request = choosing();
    request.steps.free = free;
    return RunPlanner(config, request, sample, machine).plan();
  };
  const PlannedRun kept = within(search.steps().keep_all_peak(), two_cores);
  const PlannedRun smallest = search.plan_within(search.steps().smallest_budget());
  ASSERT_GT(smallest.chunks.loss_rows, 0);
  std::vector<KernelTime> kernels = kernels_of(smallest);
  for (KernelTime& k : kernels_of(kept)) {
    if (k.name == "cross_entropy") k.seconds *= 100;
    kernels.push_back(k);
  }
  kernels = distinct(std::move(kernels));
  const Machine slow = corrected_machine(two_cores, /*factor=*/1, kernels);
  RunPlanner slower(config, choosing(), sample, slow);
  EXPECT_GT(slower.plan_within(slower.steps().keep_all_peak()).chunks.loss_rows, 0);
  const PlannedRun still = within(slower.steps().keep_all_peak(), slow);
  EXPECT_EQ(still.chunks.loss_rows, 0);
  EXPECT_EQ(still.plans.step, make_plans(config).step);
  EXPECT_EQ(still.foretold.memory.peak, slower.steps().keep_all_peak());
  const PlannedRun less = within(slower.steps().keep_all_peak() - Arena::granule, slow);
  EXPECT_TRUE(less.search->fits);
  EXPECT_LT(less.foretold.memory.peak, slower.steps().keep_all_peak());
}

TEST(PlannedRun, FixesAGivenPlan) {
  RunPlanner search(chunkable(), choosing(), sample, two_cores);
  const PlannedRun run = search.plan_within(search.steps().smallest_budget());
  RunRequest request = choosing();
  request.steps.plan = run.plans.step;
  request.steps.plan->fingerprints = step_fingerprints(describe_step(run.config));
  EXPECT_EQ(plan_run(run.config, request).foretold.memory.peak, run.foretold.memory.peak);
  RunPlanner fixed(run.config, request, sample, two_cores);
  const PlannedRun found = fixed.plan_within(run.foretold.memory.peak);
  EXPECT_EQ(found.foretold.memory.peak, run.foretold.memory.peak);
  EXPECT_GT(found.search->keep_all_peak, run.foretold.memory.peak);
  expect_error(ErrorKind::invalid, {"the plan cuts the loss"},
               [&] { plan_run(chunkable(), request); });
}

TEST(PlannedRun, ComparesWhatIsSetByHand) {
  RunRequest request = choosing({});
  EXPECT_FALSE(plan_run(chunkable(), request).search);
  request.compares = true;
  const PlannedRun kept = plan_run(chunkable(), request);
  EXPECT_FALSE(kept.is_chosen);
  EXPECT_EQ(kept.search->keep_all_peak, kept.foretold.memory.peak);
  EXPECT_EQ(kept.limit, request.steps.free);
  set_recompute(request.steps.policy.emplace(), "block");
  const PlannedRun blocks = plan_run(chunkable(), request);
  EXPECT_EQ(blocks.search->keep_all_peak, kept.foretold.memory.peak);
  EXPECT_GT(blocks.foretold.seconds, blocks.search->keep_all_seconds);
  EXPECT_LE(blocks.search->lower_bound, kept.foretold.seconds);
}

TEST(PlannedRun, AGivenPlanThatDoesNotFitIsRefusedInItsOwnWords) {
  RunRequest request = choosing();
  request.compares = true;
  request.steps.plan = make_plans(chunkable()).step;
  request.steps.plan->fingerprints = step_fingerprints(describe_step(chunkable()));
  request.steps.budget = plan_run(chunkable(), request).foretold.memory.peak / 2;
  const PlannedRun run = plan_run(chunkable(), request);
  ASSERT_TRUE(run.refusal);
  EXPECT_NE(std::string(run.refusal->what()).find("another plan may fit"), std::string::npos);
  EXPECT_EQ(run.refusal->fields().settings, (std::vector<std::string>{"memory", "plan"}));
}

TEST(PlanReport, HasEveryNumber) {
  RunPlanner search(chunkable(), choosing(), sample, *named_machine("h100"));
  const PlannedRun run = search.plan_within(search.steps().smallest_budget());
  const nlohmann::json report = plan_report(run, *named_machine("h100"), "small");
  EXPECT_EQ(report["format_version"], 2);
  EXPECT_EQ(report["machine"], "h100");
  EXPECT_EQ(report["budget_bytes"], run.limit);
  EXPECT_EQ(report["foretold_peak_bytes"], run.foretold.memory.peak);
  EXPECT_EQ(report["keep_all_peak_bytes"], search.steps().keep_all_peak());
  EXPECT_DOUBLE_EQ(report["gap"].get<double>(), gap(run));
  EXPECT_EQ(report["loss_chunk"], run.chunks.loss_rows);
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
