// runs: numbers
// Plans by a table of measured kernels, each of which is off by a factor of up to four: chunks and
// the smallest budget, which decide the losses of a run and whether it begins, are those without
// it.

#include <gtest/gtest.h>

#include <cmath>

#include "spool/models/steps/step_calibration.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/training/flags_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

FlaggedRun run_on(const Machine& machine, const char* model, const char* dtype) {
  return {.flags = {{"model", {model}},
                    {"layers", {"3"}},
                    {"heads", {"2"}},
                    {"channels", {"64"}},
                    {"vocab", {"2000"}},
                    {"context", {"256"}},
                    {"seq", {"256"}},
                    {"batch", {"4"}},
                    {"accumulate", {"1"}},
                    {"dtype", {dtype}}},
          .machine = machine};
}

std::vector<FlaggedRun> runs() {
  const Machine gpu = *named_machine("rtx4090");
  const Machine cpu = nominal_machine({.architecture = CpuArchitecture{.threads = 8}});
  std::vector<FlaggedRun> all{run_on(gpu, "llama-tiny", "bf16"), run_on(cpu, "gpt2-tiny", "f32")};
  all.push_back(all.front());
  all.back().host_bytes = size_t{64} << 20;
  return all;
}

std::vector<size_t> budgets_of(RunPlanner& planner) {
  const size_t min = planner.steps().smallest_budget(), max = planner.steps().keep_all_peak();
  std::vector<size_t> budgets;
  for (size_t i = 0; i <= 4; ++i) budgets.push_back(min + (max - min) * i / 4);
  return budgets;
}

// Those of plans of some budgets.
std::vector<KernelTime> kernels_of(const FlaggedRun& run) {
  const auto planner = planner_of(run);
  std::vector<KernelTime> kernels;
  for (const size_t budget : budgets_of(*planner)) {
    const PlannedRun planned = planner->plan_within(budget);
    const auto more =
        rehearse_kernels(measurable_step(describe_step(planned.config), planned.plans), run.machine)
            .launches;
    kernels.insert(kernels.end(), more.begin(), more.end());
  }
  return distinct(std::move(kernels));
}

FlaggedRun with_random_kernels(FlaggedRun run, std::vector<KernelTime> kernels, uint64_t seed) {
  Random random(seed);
  for (KernelTime& k : kernels) k.seconds *= std::exp2(4 * random.uniform() - 2);
  run.machine.kernels = std::make_shared<KernelTimes>(std::move(kernels));
  return run;
}

int tables() { return nightly() ? 20 : 2; }

TEST(RandomKernels, ChangeNeitherTheSmallestBudgetNorChunks) {
  for (const FlaggedRun& run : runs()) {
    const auto planner = planner_of(run);
    const std::vector<KernelTime> kernels = kernels_of(run);
    for (int table = 0; table < tables(); ++table) {
      const FlaggedRun noisy = with_random_kernels(run, kernels, static_cast<uint64_t>(table));
      SCOPED_TRACE(sentence("table ", table, " ", in_words(noisy)));
      const auto other = planner_of(noisy);
      EXPECT_EQ(other->steps().smallest_budget(), planner->steps().smallest_budget());
      for (const size_t budget : budgets_of(*planner)) {
        const StepChunks ours = planner->plan_within(budget).chunks;
        const StepChunks theirs = other->plan_within(budget).chunks;
        EXPECT_EQ(theirs.loss_rows, ours.loss_rows) << budget;
        EXPECT_TRUE(theirs == ours) << budget;
      }
    }
  }
}

// Flags that leave the chunks as they are chosen are no faster.  Chunks that no table chooses have
// a price by tables in which every kernel is off by up to four.
TEST(RandomKernels, LeaveLittleToFlags) {
  for (const FlaggedRun& run : runs()) {
    const std::vector<KernelTime> kernels = kernels_of(run);
    for (int table = 0; table < tables(); ++table) {
      const FlaggedRun noisy = with_random_kernels(run, kernels, static_cast<uint64_t>(table));
      const auto search = planner_of(noisy);
      Random random(static_cast<uint64_t>(table), /*stream=*/1);
      for (int i = 0; i < 8; ++i) {
        GivenTexts policy = random_policy(random, noisy);
        SCOPED_TRACE(sentence("table ", table, " ", in_words(with_flags(noisy, policy))));
        const Costs any = costs_of(planner_of(with_flags(noisy, policy))->plan());
        expect_no_help(*search, noisy, any, /*slower=*/1.25);
        const StepChunks chunks = search->plan_within(any.peak).chunks;
        if (!chunks.nodes.empty()) continue;
        policy["chunk-loss"] = {std::to_string(chunks.loss_rows)};
        policy["chunk-mlp"] = {"0"};
        const Costs alike = costs_of(planner_of(with_flags(noisy, policy))->plan());
        if (!(search->plan_within(alike.peak).chunks == chunks)) continue;
        expect_no_help(*search, noisy, alike, /*slower=*/1.001);
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
