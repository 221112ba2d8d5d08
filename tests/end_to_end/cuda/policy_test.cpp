// Training on a GPU under policies: the losses of keeping every value, and the peaks foretold.

#include "tests/kernels/cuda_testing.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

class CudaPolicy : public OnCuda {};

struct PolicyCase {
  int64_t accumulate;
  const char* recompute;
};

std::vector<PolicyCase> policy_cases() {
  if (!nightly()) return {{1, "none"}, {1, "block"}, {3, "block"}};
  std::vector<PolicyCase> all;
  for (const int64_t accumulate : {1, 3}) {
    for (const char* recompute : {"none", "norms,gelu", "block"})
      all.push_back({accumulate, recompute});
  }
  return all;
}

// Each with steps that are captured and replayed and with steps that are enqueued.
TEST_F(CudaPolicy, HasTheLossesOfKeepingAllAndThePeaksForetold) {
  const TemporaryDirectory directory;
  for (const auto& [accumulate, recompute] : policy_cases()) {
    TrainingConfig config = small();
    config.steps = nightly() ? 3 : 2;
    config.accumulate = accumulate;
    config.dropout = 0.1f;
    const Losses kept = train(config, *cuda_stream());
    const Machine slow = slow_machine(cuda_stream()->architecture());
    for (const OffloadTarget target : {OffloadTarget::host, OffloadTarget::disk}) {
      Policy policy{.offload = Offloading::all, .min_offload_bytes = 1, .target = target};
      set_recompute(policy, recompute);
      PlannedRun run =
          plan_run(config, {.policy = policy, .spill_directory = directory.path()}, slow);
      StepPlans& plans = run.plans;
      const Report& foretold = run.foretold;
      ASSERT_TRUE(offloads(plans.step));
      for (const bool graph : {false, true}) {
        // A step with work on the host is never captured, even if a graph is asked for.
        if (graph && target == OffloadTarget::disk && !nightly()) continue;
        plans.graph = graph;
        const Losses losses = train(config, plans, *cuda_stream(foretold.memory.peak));
        EXPECT_EQ(losses.peak, foretold.memory.peak);
        EXPECT_EQ(losses, kept) << recompute << ' ' << name(target) << ' ' << graph;
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
