// SGD on cuda.

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/sgd_testing.h"

namespace spool::testing {
namespace {

class CudaSgd : public OnCuda {};

TEST_F(CudaSgd, TwoStepsMatchTheCpu) {
  for (SgdCase c : sgd_cases()) {
    c.numels = {1, 4, 1023, 0, 2048, 5, 5001};  // tails, several blocks, and no elements
    for (c.skip = 0; c.skip < 2; ++c.skip) {
      SCOPED_TRACE(description(c));
      const auto two_steps = [&](Stream& stream, bool state) {
        const SgdTensors tensors(c, stream);
        launch(tensors.kernel(), stream);
        launch(tensors.kernel(), stream);
        return state ? tensors.state() : tensors.parameters();
      };
      expect_as_on_cpu([&](Stream& s) { return two_steps(s, /*state=*/true); }, 1e-5);
      expect_as_on_cpu([&](Stream& s) { return two_steps(s, /*state=*/false); },
                       c.stochastic ? 2 * tolerance(c.type) : tolerance(c.type));
    }
  }
}

TEST_F(CudaSgd, SlicesHaveTheBitsOfTheWhole) {
  constexpr int64_t granule = Sgd::granule;
  for (SgdCase c : sgd_cases()) {
    c.numels = {1, 5 * granule + 5, granule, 3 * granule - 1};
    const auto stream = cuda_stream();
    const SgdTensors whole(c, *stream), sliced(c, *stream);
    launch(whole.kernel(), *stream);
    launch(in_slices(sliced.kernel(), 2 * granule), *stream);
    EXPECT_EQ(sliced.everything(), whole.everything()) << description(c);
  }
}

TEST_F(CudaSgd, ChangesNothingIfTheGradientsAreNotFinite) {
  for (SgdCase c : sgd_cases()) {
    c.numels = {1030, 7};
    const auto stream = cuda_stream();
    const SgdTensors tensors(c, *stream);
    const Numbers before = tensors.everything();
    launch(Fill{.out = tensors.clip()}, *stream);
    launch(tensors.kernel(), *stream);
    EXPECT_EQ(tensors.everything(), before) << description(c);
  }
}

}  // namespace
}  // namespace spool::testing
