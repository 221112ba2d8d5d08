// The gated activation on the cpu, against f64.

#include "spool/kernels/swiglu.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

struct Reference {
  Numbers y, dx;

  Reference(const Numbers& x, const Numbers& dy, int64_t I) : dx(x.size()) {
    const auto width = static_cast<size_t>(I);
    for (size_t i = 0; i < dy.size(); ++i) {
      const size_t gate = i / width * 2 * width + i % width, up = gate + width;
      const double g = x[gate], u = x[up], s = 1 / (1 + std::exp(-g));
      y.push_back(g * s * u);
      dx[gate] = dy[i] * u * s * (1 + g * (1 - s));
      dx[up] = dy[i] * g * s;
    }
  }
};

TEST(Swiglu, ForwardAndBackwardFollowTheirFormulas) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, I] : extents) {
      SCOPED_TRACE(sentence(name(t), ' ', N, " x ", I));
      const Tensor x = normal({N, 2 * I}, t, stream, 1, 3), dy = normal({N, I}, t, stream, 2);
      const Tensor y = unset({N, I}, t, stream);
      launch(SwigluForward{.y = y, .x = x}, stream);
      const Reference wanted(values(x), values(dy), I);
      EXPECT_LT(difference(values(y), wanted.y), tolerance(t));
      for (const DType to : {t, accumulator(t)}) {
        expect_gradient({{N, 2 * I}, to}, stream, wanted.dx, [&](const Grad& dx) {
          launch(SwigluBackward{.dx = dx, .dy = dy, .x = x}, stream);
        });
      }
      launch(SwigluBackward{.dx = x, .dy = dy, .x = x}, stream);
      EXPECT_LT(difference(values(x), wanted.dx), tolerance(t)) << "over x";
    }
  }
}

// Gates so large that the exponential overflows or vanishes.
TEST(Swiglu, LargeGatesAreAStepAndTheirGradientsFinite) {
  CpuStream stream(64 << 20, 2);
  const Tensor x =
      make_tensor<float>({1, 8}, std::vector<float>{-200, -90, 90, 200, 1, 2, 3, 4}, stream);
  const Tensor y = unset({1, 4}, DType::f32, stream), dx = unset({1, 8}, DType::f32, stream);
  const Tensor dy = make_tensor<float>({1, 4}, std::vector<float>{1, 1, 1, 1}, stream);
  launch(SwigluForward{.y = y, .x = x}, stream);
  launch(SwigluBackward{.dx = dx, .dy = dy, .x = x}, stream);
  const Numbers wanted{0, 0, 270, 800}, slopes{0, 0, 3, 4, 0, 0, 90, 200};
  EXPECT_LT(difference(values(y), wanted), 1e-6);
  EXPECT_LT(difference(values(dx), slopes), 1e-6);
}

TEST(Swiglu, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({301, 2 * 517}, t, stream, 1), dy = normal({301, 517}, t, stream, 2);
      const Tensor y = unset({301, 517}, t, stream), dx = unset({301, 2 * 517}, t, stream);
      launch(SwigluForward{.y = y, .x = x}, stream);
      launch(SwigluBackward{.dx = dx, .dy = dy, .x = x}, stream);
      Numbers all = values(y);
      append(all, dx);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
