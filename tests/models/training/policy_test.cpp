// Runs under the policies that a user sets by hand: the losses of keeping all, bit for bit, and the
// peaks foretold.

#include "spool/models/training/step_layout.h"
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
  all.push_back({.gelu = true,
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

// So slow that there is time for values to go and come back.
Machine slow_machine() {
  return {.architecture = CpuArchitecture{.threads = 2}, .f32_flops = 1e9, .launch_seconds = 1e-4};
}

TEST(Policy, RunsHaveTheLossesOfKeepingAllAndThePeaksForetold) {
  const TemporaryDirectory directory;
  for (const int64_t accumulate : {1, 3}) {
    TrainingConfig config = small();
    config.steps = 2;
    config.accumulate = accumulate;
    config.dropout = 0.1f;
    config.loss_chunk = 7;
    CpuStream plenty(size_t{256} << 20, 2);
    Losses kept = train(config, plenty);
    for (const Policy& policy : policies()) {
      TrainingPlans plans = make_plans(config, policy, slow_machine());
      EXPECT_EQ(offloads(plans.step), policy.offload != Offloading::none);
      plans.spill_directory = directory.path();
      plans.layout = lay_out_step(config, plans, slow_machine());
      const Report foretold = rehearse_training(config, plans, slow_machine(), sample);
      plans.host_bytes = foretold.host.peak;
      plans.disk_bytes = foretold.disk.peak;
      CpuStream stream(foretold.memory.peak, 2);
      Losses losses = train(config, plans, stream);
      EXPECT_EQ(losses.peak, foretold.memory.peak);
      losses.peak = kept.peak = 0;
      EXPECT_EQ(losses, kept) << recompute_list(policy) << ' ' << name(policy.offload);
      EXPECT_EQ(foretold.disk.peak > 0, policy.target == OffloadTarget::disk);
    }
  }
}

// What a policy is for.
TEST(Policy, EachTakesLessThanTheOneBefore) {
  TrainingConfig config;
  config.batch = 4;
  config.loss_chunk = 512;
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

TEST(Policy, WhatIsNotThereIsASentence) {
  Policy policy;
  EXPECT_TRUE(
      contains(error_of([&] { set_recompute(policy, "norms,relu"); }), "there is no 'relu'"));
  EXPECT_NE(error_of([&] { set_recompute(policy, ""); }), "");
  EXPECT_FALSE(parse<Offloading>("some"));
  EXPECT_FALSE(parse<OptimizerState>("disk"));
}

}  // namespace
}  // namespace spool::testing
