// runs: threads
// Saved tensors on a GPU: plans at random change no bit, and the disk serves as the host does.

#include "spool/autograd/ops.h"
#include "tests/end_to_end/model_step.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

class CudaSavedTensors : public OnCuda {};

TEST_F(CudaSavedTensors, AreTheSameUnderRandomPlans) {
  const ModelStep step{
      .config = Gpt2Config{.layers = 2, .heads = 2, .channels = 16, .context = 8, .vocabulary = 50},
      .B = 2,
      .T = 8};
  expect_as_kept(step, /*count=*/nightly() ? 30 : 20, {DeviceType::cuda});
}

TEST_F(CudaSavedTensors, GiveTheSameGradientsFromTheDisk) {
  const TemporaryDirectory directory;
  Plan plan{.placement = std::vector(16, Placement::offload)};
  for (ValueId v = 0; v < 16; ++v) {
    plan.offloads.push_back({.value = v, .rows = v % 3 - 1, .target = OffloadTarget::disk});
  }
  const auto gradient = [&](const Plan& p) {
    const auto stream = cuda_stream();
    HostLink link(*stream, size_t{1} << 20);
    Offloader offloader(link, directory.path(), size_t{1} << 20);
    Tape tape(*stream, {.plan = p, .offloader = &offloader});
    const Var x = tape.input(normal({9, 33}, DType::f32, *stream, 1), true);
    Var h = x;
    for (int i = 0; i < 8; ++i) h = gelu(h);
    tape.backward({Root{h, normal({9, 33}, DType::f32, *stream, 2)}});
    const bool offloaded = offloader.offloaded().tensors > 0;
    EXPECT_EQ(offloaded, !p.placement.empty());
    return values(tape.grad(x));
  };
  EXPECT_EQ(gradient(plan), gradient({}));
}

}  // namespace
}  // namespace spool::testing
