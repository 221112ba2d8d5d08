// runs: threads
// The place of AdamW's state changes no bit: on the device, streamed through it, or on the host.

#include <cstdlib>

#include "spool/kernels/elementwise.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const OptimizerForm forms[] = {
    {},
    {.type = DType::bf16, .gradient = DType::bf16},
    {.type = DType::bf16, .gradient = DType::f32},
    {.type = DType::bf16, .gradient = DType::bf16, .rounding = Rounding::stochastic},
    {.type = DType::bf16, .gradient = DType::f32, .rounding = Rounding::stochastic}};

void expect_same_bits(const std::vector<int64_t>& numels) {
  for (const OptimizerForm& form : forms) {
    Bytes wanted;
    for (const OptimizerState state : optimizer_states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(form.rounding), ", ", name(state)));
      OptimizerRun run(numels, form, state);
      for (int64_t t = 1; t <= 10; ++t) {
        run.make_gradients(t);
        run.step(t);
        for (const Parameter& p : run.parameters) EXPECT_FALSE(p.grad);
      }
      if (state == OptimizerState::device) wanted = run.bytes();
      EXPECT_TRUE(run.bytes() == wanted);
    }
  }
}

TEST(OptimizerState, HasTheSameBitsForTensorsLargerThanABucket) {
  expect_same_bits({1, 5000, 70001, 2048, 0, 4097, 3, 12345});
}

// Random delays reveal orders of the queues that are not enforced by events.
TEST(OptimizerState, HasTheSameBitsOnStreamsDelayedAtRandom) {
  const bool given = std::getenv("SPOOL_CPU_DELAY");
  ::setenv("SPOOL_CPU_DELAY", "300", /*overwrite=*/0);
  expect_same_bits({1, 5000, 70001, 2048});
  if (!given) ::unsetenv("SPOOL_CPU_DELAY");
}

TEST(OptimizerState, HasTheSameBitsForManySmallTensors) {
  expect_same_bits(std::vector<int64_t>(700, 5));  // more tensors in a bucket than in a launch
}

TEST(OptimizerState, HasTheSameBitsForLessThanABucket) { expect_same_bits({7, 100}); }

TEST(OptimizerState, IsUnchangedByGradientsThatAreNotFinite) {
  for (const OptimizerForm& form : forms) {
    for (const OptimizerState state : optimizer_states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(form.rounding), ", ", name(state)));
      OptimizerRun run({5000, 70001, 3}, form, state);
      for (int64_t t = 1; t <= 3; ++t) {
        run.make_gradients(t);
        run.step(t);
      }
      const Bytes before = run.bytes();
      run.make_gradients(4);
      launch(Fill{.out = run.parameters[1].grad, .value = INFINITY}, run.stream);
      run.step(4);
      EXPECT_TRUE(run.bytes() == before);
      EXPECT_EQ(read<float>(run.optimizer->clip())[2], 0);
      run.make_gradients(5);
      run.step(5);
      EXPECT_FALSE(run.bytes() == before);
    }
  }
}

TEST(OptimizerState, NeedsAHostLinkUnlessOnTheDevice) {
  CpuStream stream(OptimizerRun::plenty, 1);
  Parameter p{.name = "w", .data = normal({8, 8}, DType::f32, stream, 1)};
  const auto make = [&] { AdamWOptimizer({&p}, {}, stream, {.state = OptimizerState::streamed}); };
  expect_error(ErrorKind::invalid, {"optimizer state", "link to the host"}, make);
}

}  // namespace
}  // namespace spool::testing
