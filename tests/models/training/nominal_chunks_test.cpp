// runs: numbers
// Chunks that a search chooses are the same for any table of measured kernels and, up to eight, any
// number of threads, so losses are; and so is the smallest budget for any table.

#include <cmath>

#include "spool/models/families/gpt2.h"
#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/step_calibration.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

TrainingConfig net(DType dtype) {
  TrainingConfig config = small();
  config.model =
      Gpt2Config{.layers = 3, .heads = 2, .channels = 64, .context = 64, .vocabulary = 600};
  config.dtype = dtype;
  config.batch = 8;
  config.seq = 64;
  config.steps = 2;
  return config;
}

RunRequest choosing(size_t budget = 0) {
  return {.steps = {.choose = Choices{.placement = true, .loss_chunk = true, .regions = true},
                    .budget = budget},
          .compares = true};
}

Machine on_threads(int threads) { return {.architecture = this_processor(threads)}; }

RunPlanner planner(const TrainingConfig& config, const Machine& machine, size_t budget = 0) {
  return {config, choosing(budget), sample, machine};
}

size_t smallest(const TrainingConfig& config, const Machine& machine) {
  return planner(config, machine).steps().smallest_budget();
}

size_t keep_all(const TrainingConfig& config, const Machine& machine) {
  return planner(config, machine).steps().keep_all_peak();
}

// The kernels of the plans that keep all and that need least.
std::vector<KernelTime> kernels_of(const TrainingConfig& config) {
  RunPlanner search = planner(config, on_threads(2));
  std::vector<KernelTime> all;
  for (const size_t budget : {search.steps().smallest_budget(), search.steps().keep_all_peak()}) {
    const PlannedRun run = search.plan_within(budget);
    const MeasurableWork step = measurable_step(describe_step(run.config), run.plans);
    const auto more = rehearse_kernels(step, on_threads(2));
    all.insert(all.end(), more.launches.begin(), more.launches.end());
  }
  return distinct(std::move(all));
}

// Every kernel takes up to four times as long as by the rates, or as little.
Machine noisy(Machine machine, std::vector<KernelTime> kernels, uint64_t seed) {
  Random random(seed, /*stream=*/0);
  for (KernelTime& k : kernels) k.seconds *= std::exp2(4 * (random.uniform() - 0.5));
  machine.kernels = std::make_shared<KernelTimes>(std::move(kernels));
  return machine;
}

// A machine by its rates, and two by bad tables of these kernels.
std::vector<Machine> clocks_of(const std::vector<KernelTime>& kernels, int threads) {
  Machine rates = on_threads(threads);
  rates.f32_flops = rates.bf16_flops = 3e12;
  rates.bytes_per_second = 50e9;
  return {rates, noisy(on_threads(threads), kernels, 1), noisy(rates, kernels, 2)};
}

// By night all of them.
std::vector<Machine> some_clocks_of(const std::vector<KernelTime>& kernels, int threads) {
  std::vector<Machine> clocks = clocks_of(kernels, threads);
  if (!nightly()) clocks.pop_back();
  return clocks;
}

// By equal ratios.
std::vector<size_t> budgets_between(size_t min, size_t max, int count) {
  std::vector<size_t> budgets;
  const double ratio = static_cast<double>(max) / static_cast<double>(min);
  for (int i = 0; i < count; ++i) {
    budgets.push_back(
        static_cast<size_t>(static_cast<double>(min) * std::pow(ratio, 1.0 * i / (count - 1))));
  }
  return budgets;
}

TEST(NominalChunks, AreThoseOfAnyTableAndNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TrainingConfig config = net(dtype);
    const std::vector<size_t> budgets =
        budgets_between(smallest(config, on_threads(1)), keep_all(config, on_threads(8)), 4);
    const std::vector<KernelTime> kernels = kernels_of(config);
    std::vector<std::optional<StepChunks>> expected(budgets.size());
    size_t in_chunks = 0;
    for (const int threads : {8, 2, 1}) {
      for (const Machine& machine : some_clocks_of(kernels, threads)) {
        RunPlanner search = planner(config, machine);
        for (size_t i = 0; i < budgets.size(); ++i) {
          SCOPED_TRACE(sentence(threads, " threads, budget ", i));
          const PlannedRun run = search.plan_within(budgets[i]);
          if (!run.search->fits) continue;
          EXPECT_LE(run.foretold.memory.peak, budgets[i]);
          EXPECT_EQ(run.chunks, expected[i].value_or(run.chunks));
          expected[i] = run.chunks;
          in_chunks += run.chunks != StepChunks{};
        }
      }
    }
    EXPECT_GT(in_chunks, nightly() ? 9u : 6u);
    EXPECT_EQ(expected.back(), StepChunks{});
  }
}

TEST(NominalChunks, GiveTheSameBits) {
  const TrainingConfig config = net(DType::bf16);
  const std::vector<size_t> budgets =
      budgets_between(smallest(config, on_threads(8)), keep_all(config, on_threads(8)), 4);
  const std::vector<KernelTime> kernels = kernels_of(config);
  for (const size_t budget : {budgets[0], budgets[1]}) {
    std::optional<Losses> expected;
    for (const int threads : {1, 2, 8}) {
      SCOPED_TRACE(sentence(threads, " threads, budget ", budget));
      const Machine machine = clocks_of(kernels, threads)[static_cast<size_t>(threads) % 3];
      const PlannedRun run = planner(config, machine, budget).plan();
      ASSERT_FALSE(run.refusal);
      EXPECT_NE(run.chunks, StepChunks{});
      CpuStream stream(budget, threads);
      const Losses losses = train(run.config, run.plans, stream);
      EXPECT_LE(losses.peak, run.foretold.memory.peak);
      EXPECT_EQ(losses, expected.value_or(losses));
      expected = losses;
    }
  }
}

TEST(NominalChunks, LeaveTheSmallestBudgetToBytes) {
  const TrainingConfig config = net(DType::f32);
  const size_t min = smallest(config, on_threads(2));
  for (const Machine& machine : some_clocks_of(kernels_of(config), 2)) {
    EXPECT_EQ(smallest(config, machine), min);
    const PlannedRun fits = planner(config, machine, min).plan();
    EXPECT_FALSE(fits.refusal);
    EXPECT_LE(fits.foretold.memory.peak, min);
    const PlannedRun less = planner(config, machine, min - Arena::granule).plan();
    ASSERT_TRUE(less.refusal);
    EXPECT_EQ(less.foretold.memory.peak, min);
  }
}

TEST(NominalChunks, NameTheThreadsTheyHoldFor) {
  const TrainingConfig config = net(DType::f32);
  const size_t for_two = smallest(config, on_threads(2)),
               for_eight = smallest(config, on_threads(8));
  ASSERT_LT(for_two, for_eight);
  const auto held = [&](const Machine& machine, size_t budget) {
    return planner(config, machine, budget).plan().chunks_hold_for_threads;
  };
  EXPECT_EQ(held(on_threads(2), for_two), 2);
  EXPECT_EQ(held(on_threads(2), for_eight - Arena::granule), 4);
  EXPECT_EQ(held(on_threads(2), for_eight), 8);
  EXPECT_EQ(held(on_threads(3), for_eight), 8);
  EXPECT_EQ(held(on_threads(9), keep_all(config, on_threads(9))), 9);
  EXPECT_EQ(held(*named_machine("h100"), for_eight), 0);
}

TEST(NominalChunks, AreNoneWhereAllFitsWithTheirThreads) {
  const TrainingConfig config = net(DType::f32);
  const size_t max = keep_all(config, on_threads(8));
  ASSERT_GT(max, keep_all(config, on_threads(2)));
  const auto chunks = [&](size_t budget) {
    return planner(config, on_threads(2), budget).plan().chunks;
  };
  EXPECT_EQ(chunks(max), StepChunks{});
  EXPECT_NE(chunks(smallest(config, on_threads(8))), StepChunks{});
}

TEST(NominalChunks, SayWhatAFreeChoiceWouldSave) {
  const TrainingConfig config = net(DType::f32);
  const size_t budget = keep_all(config, on_threads(8));
  EXPECT_EQ(planner(config, on_threads(2), budget).plan().slowed_by_chunks, 0);
  std::vector<KernelTime> kernels = kernels_of(config);
  double longest = 0;  // of the whole loss
  for (const KernelTime& k : kernels) {
    if (k.name == "cross_entropy") longest = std::max(longest, k.seconds);
  }
  for (KernelTime& k : kernels) {
    if (k.name == "cross_entropy" && k.seconds == longest) k.seconds = 1;
  }
  Machine machine = on_threads(2);
  machine.kernels = std::make_shared<KernelTimes>(kernels);
  const PlannedRun run = planner(config, machine, budget).plan();
  EXPECT_EQ(run.chunks, StepChunks{});
  EXPECT_GT(run.slowed_by_chunks, 0.9);
  EXPECT_LE(run.search->lower_bound, (1 - run.slowed_by_chunks) * run.foretold.seconds);
}

}  // namespace
}  // namespace spool::testing
