// Saved tensors on a GPU, through the code that the cpu has.

#include "spool/autograd/ops.h"
#include "spool/models/training/step_layout.h"
#include "tests/end_to_end/gpt2_step.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

class CudaSavedTensors : public OnCuda {};

TEST_F(CudaSavedTensors, Gpt2IsTheSameUnderMixtures) {
  const Gpt2Step step{
      .config = {.layers = 2, .heads = 2, .channels = 16, .context = 8, .vocabulary = 50},
      .B = 2,
      .T = 8};
  expect_as_kept(step, /*count=*/20, {DeviceType::cuda});
}

// In a recorded step as in one that is enqueued.
TEST_F(CudaSavedTensors, RunsUnderPoliciesHaveTheLossesOfKeepingAll) {
  const TemporaryDirectory directory;
  for (const auto& [accumulate, recompute] : {std::pair{1, "none"}, {1, "block"}, {3, "block"}}) {
    TrainingConfig config = small();
    config.steps = 2;
    config.accumulate = accumulate;
    config.dropout = 0.1f;
    Losses kept = train(config, *cuda_stream());
    const Machine slow{
        .architecture = cuda_stream()->architecture(), .f32_flops = 1e9, .launch_seconds = 1e-4};
    for (const OffloadTarget target : {OffloadTarget::host, OffloadTarget::disk}) {
      Policy policy{.offload = Offloading::all, .min_offload_bytes = 1, .target = target};
      set_recompute(policy, recompute);
      TrainingPlans plans = make_plans(config, policy, slow);
      ASSERT_TRUE(offloads(plans.step));
      plans.spill_directory = directory.path();
      plans.layout = lay_out_step(config, plans, slow);
      const Report foretold = rehearse_training(config, plans, slow, sample);
      plans.host_bytes = foretold.host.peak;
      plans.disk_bytes = foretold.disk.peak;
      for (const bool graph : {false, true}) {
        if (graph && target == OffloadTarget::disk) continue;  // there is none with it
        plans.graph = graph;
        Losses losses = train(config, plans, *cuda_stream(foretold.memory.peak));
        EXPECT_EQ(losses.peak, foretold.memory.peak);
        losses.peak = kept.peak = 0;
        EXPECT_EQ(losses, kept) << recompute << ' ' << name(target) << ' ' << graph;
      }
    }
  }
}

TEST_F(CudaSavedTensors, AFileServesAsTheHostDoes) {
  const TemporaryDirectory directory;
  Plan plan{.placement = std::vector(16, Placement::offload)};
  for (ValueId v = 0; v < 16; ++v) {
    plan.offloads.push_back({.value = v, .rows = v % 3 - 1, .target = OffloadTarget::disk});
  }
  const auto gradient = [&](const Plan& how) {
    const auto stream = cuda_stream();
    HostLink link(*stream, size_t{1} << 20);
    Offloader offloader(link, directory.path(), size_t{1} << 20);
    Tape tape(*stream, {.plan = how, .offloader = &offloader});
    const Var x = tape.input(normal({9, 33}, DType::f32, *stream, 1), true);
    Var h = x;
    for (int i = 0; i < 8; ++i) h = gelu(h);
    tape.backward({Root{h, normal({9, 33}, DType::f32, *stream, 2)}});
    const bool travelled = offloader.sent().tensors > 0;
    EXPECT_EQ(travelled, !how.placement.empty());
    return values(tape.grad(x));
  };
  EXPECT_EQ(gradient(plan), gradient({}));
}

}  // namespace
}  // namespace spool::testing
