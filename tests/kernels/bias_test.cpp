// runs: numbers
// BiasBackward on the cpu against sums in f64.

#include "spool/kernels/bias.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

TEST(Bias, GradientIsTheSumOfRows) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, C] : extents) {
      const Tensor dy = normal({N, C}, t, stream, 1);
      const Numbers all = values(dy);
      Numbers sums(static_cast<size_t>(C));
      for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
      for (const DType to : {t, accumulator(t)}) {
        expect_gradient({{C}, to}, stream, sums, [&](const Grad& dbias) {
          launch(BiasBackward{.dbias = dbias, .dy = dy}, stream);
        });
      }
    }
  }
}

TEST(Bias, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Shape shape{301, 517};
      const Tensor a = normal(shape, t, stream, 1), b = normal(shape, t, stream, 2);
      const Tensor dbias = unset({517}, t, stream), more = normal({517}, t, stream, 3);
      launch(BiasBackward{.dbias = dbias, .dy = a}, stream);
      launch(BiasBackward{.dbias = Grad(more, true), .dy = b}, stream);
      Numbers all = values(dbias);
      append(all, more);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
