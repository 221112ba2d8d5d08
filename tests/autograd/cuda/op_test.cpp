// runs: threads
// Properties of every op on cuda, on every sample of the table: it matches the cpu, takes the
// memory that meta foretold, and has the same bits every time.

#include <algorithm>

#include "spool/runtime/meta/stream.h"
#include "tests/autograd/sample_run.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class EveryOpOnCuda : public ::testing::TestWithParam<OpSample> {
 protected:
  void SetUp() override {
    if (!there_is_cuda()) GTEST_SKIP() << "there is no CUDA device here";
  }
};
INSTANTIATE_TEST_SUITE_P(Op, EveryOpOnCuda, ::testing::ValuesIn(op_samples()),
                         [](const auto& sample) { return sample.param.name; });

void expect_near(const std::vector<Numbers>& found, const std::vector<Numbers>& wanted,
                 double bound) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(difference(found[i], wanted[i]), bound) << i;
}

TEST_P(EveryOpOnCuda, MatchesTheCpu) {
  for (const DType dtype : cuda_types) {
    CpuStream cpu(on_both, 1);
    const bool narrow = dtype == DType::bf16;
    for (int chunks = 1; chunks <= GetParam().chunks; ++chunks) {
      SampleOptions options{.dtype = dtype};
      options.tape.plan.chunks.assign(8, chunks);
      const SampleValues wanted = run_sample(GetParam(), cpu, options);
      SampleValues first;
      in_every_order([&] {
        const auto stream = cuda_stream();
        const SampleValues found = run_sample(GetParam(), *stream, options);
        expect_near(found.outputs, wanted.outputs, narrow ? 2e-2 : 4e-6);
        expect_near(found.gradients, wanted.gradients, narrow ? 4e-2 : 8e-6);
        if (first.outputs.empty()) first = found;
        EXPECT_EQ(found, first) << "not the same bits again";
      });
    }
  }
}

TEST_P(EveryOpOnCuda, MetaForetellsItsPeakToTheByte) {
  for (const DType dtype : cuda_types) {
    const auto work = [&](Stream& stream) {
      SampleRun run(GetParam(), stream, {.dtype = dtype});
      run.forward();
      run.backward();
    };
    const auto probe = cuda_stream(Arena::granule);
    MetaStream meta(Machine{.architecture = probe->architecture()});
    work(meta);
    const size_t foretold = meta.memory().peak;
    const auto stream = cuda_stream(foretold);
    work(*stream);
    EXPECT_EQ(stream->memory().peak, foretold) << name(dtype);
    EXPECT_EQ(stream->memory().live, 0u);
    stream->synchronize();
  }
}

TEST_P(EveryOpOnCuda, RecomputingKeepsItsBits) {
  for (const DType dtype : cuda_types) {
    const auto stream = cuda_stream();
    const auto gradients = [&](const Plan& plan) {
      SampleRun run(GetParam(), *stream,
                    {.dtype = dtype, .tape = {.plan = plan}, .through_gelu = true});
      run.forward();
      run.backward();
      return run.gradients();
    };
    const Plan plan{.placement = std::vector(64, Placement::recompute)};
    EXPECT_EQ(gradients(plan), gradients({})) << name(dtype);
  }
}

TEST_P(EveryOpOnCuda, AbsentGradientsLeaveTheOthersUnchanged) {
  const OpSample& sample = GetParam();
  const auto has_gradient = [](const SampleInput& input) { return input.below == 0; };
  if (std::ranges::count_if(sample.inputs, has_gradient) == 1) return;
  const auto stream = cuda_stream();
  const SampleValues all = run_sample(sample, *stream, {.dtype = DType::f32});
  for (size_t without = 0; without < sample.inputs.size(); ++without) {
    if (!has_gradient(sample.inputs[without])) continue;
    SampleValues expected = all;
    expected.gradients[without].clear();
    const SampleOptions options{.dtype = DType::f32, .without_gradient = static_cast<int>(without)};
    EXPECT_EQ(run_sample(sample, *stream, options), expected) << "without input " << without;
  }
}

}  // namespace
}  // namespace spool::testing
