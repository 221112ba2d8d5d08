// Saved tensors on a GPU, through the code that the cpu has.

#include "cuda_testing.h"
#include "plan_testing.h"
#include "spool/autograd/ops.h"
#include "temporary_directory.h"

namespace spool::testing {
namespace {

class CudaSavedTensors : public OnCuda {};

TEST_F(CudaSavedTensors, Gpt2IsTheSameUnderMixtures) {
  const Gpt2Step step{
      .config = {.layers = 2, .heads = 2, .channels = 16, .context = 8, .vocabulary = 50},
      .B = 2,
      .T = 8};
  expect_as_kept(step, 30, {DeviceType::cuda});
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
