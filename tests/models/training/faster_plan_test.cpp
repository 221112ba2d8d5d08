// runs: numbers
// Whether a faster plan is found for a run once its steps have corrected its clock.

#include "spool/models/training/faster_plan.h"
#include "spool/models/families/gpt2.h"

#include <set>

#include "spool/models/steps/step_calibration.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_cores{.architecture = this_processor(2)};

TrainingConfig layers() {
  TrainingConfig config = small();
  config.model =
      Gpt2Config{.layers = 4, .heads = 2, .channels = 32, .context = 64, .vocabulary = 600};
  config.batch = 8;
  config.seq = 64;
  return config;
}

RunRequest choosing() {
  return {.steps = {.choose = Choices{.placement = true, .loss_chunk = true}}};
}

// A run planned for a budget at which some values are recomputed.
PlannedRun planned(const Machine& machine) {
  RunPlanner search(layers(), choosing(), {}, machine);
  const size_t min = search.steps().smallest_budget();
  return search.plan_within(min + (search.steps().keep_all_peak() - min) / 4);
}

std::vector<KernelTime> kernels_of(const PlannedRun& run, const Machine& machine) {
  const MeasurableWork step = measurable_step(describe_step(run.config), run.plans);
  return distinct(rehearse_kernels(step, machine).launches);
}

TEST(FasterPlan, IsNotFoundByThePlansOwnClockOrOneFactor) {
  const PlannedRun run = planned(two_cores);
  EXPECT_FALSE(find_faster_plan(run, choosing(), {}, two_cores));
  for (const double factor : {0.1, 3.0}) {
    const Machine slower = corrected_machine(two_cores, factor, {});
    EXPECT_FALSE(find_faster_plan(run, choosing(), {}, slower));
    EXPECT_NEAR(rehearse_training(run.config, run.plans, slower).seconds,
                factor * rehearse_training(run.config, run.plans, two_cores).seconds, 1e-9);
  }
}

TEST(FasterPlan, IsFoundIfWhatIsRecomputedIsSlow) {
  const PlannedRun run = planned(two_cores);
  std::set<std::string> found;
  for (const char* name : {"layer_norm", "gelu", "matmul", "attention"}) {
    std::vector<KernelTime> kernels = kernels_of(run, two_cores);
    for (KernelTime& k : kernels) {
      if (k.name == name) k.seconds *= 30;
    }
    const Machine corrected = corrected_machine(two_cores, /*factor=*/1, kernels);
    const auto faster = find_faster_plan(run, choosing(), {}, corrected);
    if (!faster) continue;
    found.insert(name);
    EXPECT_LT(faster->seconds, 0.99 * faster->own_seconds) << name;
    EXPECT_EQ(faster->own_seconds, rehearse_training(run.config, run.plans, corrected).seconds);
  }
  EXPECT_FALSE(found.empty());
}

TEST(FasterPlan, KernelsThatAreNotMeasuredTakeTheFactor) {
  const std::vector<KernelTime> known{{.name = "a", .cost = {.flops = 1}, .seconds = 1},
                                      {.name = "b", .cost = {.flops = 2}, .seconds = 2}};
  Machine machine = two_cores;
  machine.kernels = std::make_shared<KernelTimes>(known);
  const std::vector<KernelTime> measured{{.name = "b", .cost = {.flops = 2}, .seconds = 7}};
  const Machine corrected = corrected_machine(machine, /*factor=*/3, measured);
  EXPECT_EQ(*corrected.kernels->find("a", {.flops = 1}), 3);
  EXPECT_EQ(*corrected.kernels->find("b", {.flops = 2}), 7);
  const Cost other{.flops = 1e9};
  EXPECT_NEAR(corrected.seconds(other), 3 * machine.seconds(other), 1e-12);
}

TEST(FasterPlan, StepsMeasureTheirKernels) {
  const PlannedRun run = planned(two_cores);
  CpuStream stream(run.foretold.memory.peak, 2);
  Trainer trainer(run.config, run.plans, stream);
  trainer.initialise();
  StepKernelTimes times;
  EXPECT_TRUE(times.kernels(run.config, run.plans, two_cores).empty());
  for (int64_t step = 0; step < 3; ++step) {
    times.measure(stream, [&] { trainer.step(step, batch_of(run.config, step)); });
  }
  const auto measured = times.kernels(run.config, run.plans, two_cores);
  const auto foretold = kernels_of(run, two_cores);
  ASSERT_EQ(measured.size(), foretold.size());
  for (size_t i = 0; i < measured.size(); ++i) {
    EXPECT_TRUE(same_kernel(measured[i], foretold[i])) << foretold[i].name;
    EXPECT_GT(measured[i].seconds, 0) << foretold[i].name;
  }
}

}  // namespace
}  // namespace spool::testing
