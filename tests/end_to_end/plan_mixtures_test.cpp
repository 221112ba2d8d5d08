// Whatever a plan says of saved values, the numbers are those of keeping all, to the last bit, and
// the peaks are those foretold, to the last byte, though every queue is put off at random.

#include <cstdlib>

#include "spool/runtime/meta/stream.h"
#include "tests/autograd/op_samples.h"
#include "tests/autograd/plan_testing.h"
#include "tests/autograd/sample_run.h"
#include "tests/end_to_end/gpt2_step.h"

namespace spool::testing {
namespace {

const bool delayed = [] {
  ::setenv("SPOOL_CPU_DELAY", "100", 0);
  return true;
}();

#ifdef NDEBUG
constexpr int mixtures = 200;
#else
constexpr int mixtures = 20;  // builds for sanitizers are slow
#endif

// --------------------------------------------------------------------------------- op samples

class EveryOp : public ::testing::TestWithParam<OpSample> {};
INSTANTIATE_TEST_SUITE_P(Op, EveryOp, ::testing::ValuesIn(op_samples()),
                         [](const auto& sample) { return sample.param.name; });

TEST_P(EveryOp, IsTheSameUnderMixtures) {
  const OpSample& sample = GetParam();
  const PlannedStep step = [&](Stream& stream, TapeOptions options) {
    SampleRun run(sample, stream,
                  {.dtype = DType::f32, .tape = std::move(options), .through_gelu = true});
    run.forward();
    std::vector<Tensor> left;
    for (const Var& y : run.outputs()) left.push_back(y.tensor());
    run.backward();
    for (const Tensor& t : run.gradient_tensors()) left.push_back(t);
    return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : left;
  };
  MetaStream stream(Machine{});
  SampleRun run(sample, stream, {.dtype = DType::f32, .through_gelu = true});
  run.forward();
  expect_as_kept(step, mixtures, {}, [&](Random& r) { return random_plan(run.tape(), r); });
}

// -------------------------------------------------------------------------------------- GPT-2

TEST(Gpt2Mixtures, TinyIsTheSameUnderMixtures) { expect_as_kept(Gpt2Step{}, mixtures, {}); }

TEST(Gpt2Mixtures, SlowGpt2124MIsTheSameUnder20Mixtures) {
  expect_as_kept(Gpt2Step{.config = *gpt2_preset("gpt2-124m"), .B = 1, .T = 64}, 20, {});
}

}  // namespace
}  // namespace spool::testing
