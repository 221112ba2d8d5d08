// runs: numbers
// Runs under policies that a user sets have the losses of keeping every value, bit for bit, and the
// foretold peaks.

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const char* recompute :
       {"none", "norms", "norms,gelu", "attention", "block", "block,norms"}) {
    for (const Offloading offload : {Offloading::none, Offloading::residual, Offloading::all}) {
      Policy p{.offload = offload, .min_offload_bytes = 1};
      set_recompute(p, recompute);
      EXPECT_EQ(recompute_list(p) == "none", std::string(recompute) == "none");
      all.push_back(p);
    }
  }
  all.push_back(
      {.offload = Offloading::all, .min_offload_bytes = 1, .target = OffloadTarget::disk});
  all.push_back({.activations = true,
                 .offload = Offloading::residual,
                 .min_offload_bytes = 1,
                 .optimizer_state = OptimizerState::streamed});
  for (const OptimizerState state : {OptimizerState::streamed, OptimizerState::cpu}) {
    for (const OffloadTarget target : {OffloadTarget::host, OffloadTarget::disk}) {
      all.push_back({.offload = Offloading::all,
                     .min_offload_bytes = 1,
                     .target = target,
                     .optimizer_state = state});
    }
  }
  return all;
}

TEST(TrainingPolicy, HasTheLossesOfKeepingAllAndThePeaksForetold) {
  const Machine slow = slow_machine(this_processor(2));
  const TemporaryDirectory directory;
  for (const int64_t accumulate : {1, 3}) {
    TrainingConfig config = small();
    config.steps = 2;
    config.accumulate = accumulate;
    config.packed = accumulate > 1;
    config.dropout = 0.1f;
    config.chunks.loss_rows = 7;
    CpuStream plenty(size_t{256} << 20, 2);
    const Losses kept = train(config, plenty);
    for (const Policy& policy : policies()) {
      const PlannedRun run =
          plan_run(config, {.policy = policy, .spill_directory = directory.path()}, slow);
      const StepPlans& plans = run.plans;
      const Report& foretold = run.foretold;
      EXPECT_EQ(offloads(plans.step), policy.offload != Offloading::none);
      CpuStream stream(foretold.memory.peak, 2);
      const Losses losses = train(run.config, plans, stream);
      EXPECT_EQ(losses.peak, foretold.memory.peak);
      EXPECT_EQ(losses.host_peak, foretold.host.peak);
      EXPECT_EQ(losses, kept) << recompute_list(policy) << ' ' << name(policy.offload);
      EXPECT_EQ(foretold.disk.peak > 0, policy.target == OffloadTarget::disk);
    }
  }
}

TEST(TrainingPolicy, TakesLessMemoryTheMoreItRecomputes) {
  TrainingConfig config;
  config.batch = 4;
  config.chunks.loss_rows = 512;
  size_t before = MetaStream::unlimited;
  for (const char* recompute : {"none", "norms", "norms,gelu", "norms,gelu,attention", "block"}) {
    Policy policy;
    set_recompute(policy, recompute);
    const size_t peak =
        rehearse_training(config, make_plans(config, policy), Machine{}).memory.peak;
    EXPECT_LT(peak, before) << recompute;
    before = peak;
  }
}

}  // namespace
}  // namespace spool::testing
