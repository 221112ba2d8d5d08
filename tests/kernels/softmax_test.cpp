// Softmax on the cpu against plain loops in f64.

#include "spool/kernels/softmax.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

Numbers softmax_of(const Numbers& x, int64_t C) {
  Numbers y(x.size());
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(C)) {
    const auto end = first + static_cast<size_t>(C);
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += std::exp(x[i]);
    for (size_t i = first; i < end; ++i) y[i] = std::exp(x[i]) / sum;
  }
  return y;
}

Numbers gradient_of_softmax(const Numbers& dy, const Numbers& y, int64_t C) {
  Numbers dx(y.size());
  for (size_t first = 0; first < y.size(); first += static_cast<size_t>(C)) {
    const auto end = first + static_cast<size_t>(C);
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += dy[i] * y[i];
    for (size_t i = first; i < end; ++i) dx[i] = y[i] * (dy[i] - sum);
  }
  return dx;
}

TEST(Softmax, IsExponentialsOverTheirSum) {
  CpuStream stream(64 << 20, 2);
  for (const DType type : floating) {
    for (const auto& [N, C] : extents) {
      const Tensor x = normal({N, C}, type, stream, 1), dy = normal({N, C}, type, stream, 2);
      const Tensor y = unset({N, C}, type, stream);
      launch(SoftmaxForward{.y = y, .x = x}, stream);
      EXPECT_LT(difference(values(y), softmax_of(values(x), C)), tolerance(type));
      const Numbers wanted = gradient_of_softmax(values(dy), values(y), C);
      for (const DType to : {type, accumulator(type)}) {
        expect_gradient({{N, C}, to}, stream, wanted, [&](const Grad& dx) {
          launch(SoftmaxBackward{.dx = dx, .dy = dy, .y = y}, stream);
        });
      }
      launch(SoftmaxForward{.y = x, .x = x}, stream);
      EXPECT_EQ(values(x), values(y)) << "in place";
      launch(SoftmaxBackward{.dx = dy, .dy = dy, .y = y}, stream);
      EXPECT_LT(difference(values(dy), wanted), C == 1 ? 1 : tolerance(type)) << "in place";
    }
  }
}

// The exponentials of f32 overflow at 89.
TEST(Softmax, IsStable) {
  CpuStream stream(1 << 20, 1);
  const auto row = [&](std::vector<float> x) {
    const Tensor t = make_tensor<float>({static_cast<int64_t>(x.size())}, x, stream);
    launch(SoftmaxForward{.y = t, .x = t}, stream);
    return values(t);
  };
  constexpr float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(row({1000, 1000}), (Numbers{0.5, 0.5}));
  EXPECT_EQ(row({-1000, -3e38f, -1000}), (Numbers{0.5, 0, 0.5}));
  EXPECT_EQ(row({-infinite, 3, -infinite}), (Numbers{0, 1, 0}));
  for (const double y : row({-infinite, -infinite})) EXPECT_TRUE(std::isnan(y));
  for (const double y : row({0, infinite})) EXPECT_TRUE(std::isnan(y));
  for (const double y : row({0, std::nanf("")})) EXPECT_TRUE(std::isnan(y));
}

TEST(Softmax, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType type : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({700, 300}, type, stream, 1),
                   dy = normal({700, 300}, type, stream, 2);
      launch(SoftmaxForward{.y = x, .x = x}, stream);
      launch(SoftmaxBackward{.dx = dy, .dy = dy, .y = x}, stream);
      return values(dy);
    });
  }
}

}  // namespace
}  // namespace spool::testing
