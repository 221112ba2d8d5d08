// runs: threads
// Every op on cuda, on every sample of the table, is as check_op() says that ops are, and has the
// same bits in whatever order its threads run.

#include "spool/autograd/checks/check_op.h"
#include "tests/autograd/op_samples.h"
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

TEST_P(EveryOpOnCuda, HasWhatCheckOpChecks) {
  for (const std::string& failure : check_op(GetParam(), {DeviceType::cuda})) {
    ADD_FAILURE() << failure;
  }
}

TEST_P(EveryOpOnCuda, HasTheSameBitsInEveryOrder) {
  for (const DType dtype : cuda_types) {
    for (int chunks = 1; chunks <= GetParam().chunks; ++chunks) {
      SampleOptions options{.dtype = dtype};
      options.tape.plan.chunks.assign(8, chunks);
      SampleValues first;
      in_every_order([&] {
        const auto stream = cuda_stream();
        const SampleValues found = run_sample(GetParam(), *stream, options);
        if (first.outputs.empty()) first = found;
        EXPECT_EQ(found, first) << name(dtype) << ", " << chunks << " chunks";
      });
    }
  }
}

}  // namespace
}  // namespace spool::testing
