// runs: numbers
// Fill, Add, Scale and Cast on the cpu against f64, for all types.

#include "spool/kernels/elementwise.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

TEST(Elementwise, FillsEveryElement) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const Tensor out = unset({40001}, t, stream);
    launch(Fill{.out = out, .value = 1.5f}, stream);
    EXPECT_EQ(values(out), Numbers(40001, 1.5));
  }
}

TEST(Elementwise, AddsAndCopies) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, C] : extents) {
      const Shape shape{N, C};
      const Tensor a = normal(shape, t, stream, 1), b = normal(shape, t, stream, 2);
      const Numbers copy = values(a), other = values(b);
      Numbers sum = copy;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      for (const DType to : {t, accumulator(t)}) {
        expect_gradient({shape, to}, stream, sum,
                        [&](const Grad& out) { launch(Add{.out = out, .a = a, .b = b}, stream); });
        expect_gradient({shape, to}, stream, copy,
                        [&](const Grad& out) { launch(Add{.out = out, .a = a}, stream); });
      }
    }
  }
}

TEST(Elementwise, ScalesByAConstantAndByAScalarTensor) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const Tensor a = normal({7, 17}, t, stream, 1), by = normal({1}, accumulator(t), stream, 3);
    Numbers once = values(a), twice = once;
    for (double& x : once) x *= 0.3;
    for (double& x : twice) x *= 0.3 * values(by)[0];
    expect_gradient({a.shape(), t}, stream, once, [&](const Grad& out) {
      launch(Scale{.out = out, .a = a, .factor = 0.3}, stream);
    });
    expect_gradient({a.shape(), t}, stream, twice, [&](const Grad& out) {
      launch(Scale{.out = out, .a = a, .factor = 0.3, .by = by}, stream);
    });
  }
}

TEST(Elementwise, CastsToTheNearest) {
  CpuStream stream(64 << 20, 2);
  for (const DType from : floating) {
    const Tensor in = normal({40001}, from, stream, 1, 3);
    Numbers wanted[3] = {values(in), values(in), values(in)};
    for (double& x : wanted[1]) x = static_cast<float>(x);
    for (double& x : wanted[2]) x = bf16(static_cast<float>(x));
    for (size_t to = 0; to < 3; ++to) {
      const Tensor out = unset({40001}, floating[to], stream);
      launch(Cast{.out = out, .in = in}, stream);
      EXPECT_EQ(values(out), wanted[to]);
    }
  }
}

TEST(Elementwise, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Shape shape{301, 517};
      const Tensor a = normal(shape, t, stream, 1), b = normal(shape, t, stream, 2);
      const Tensor sum = normal(shape, t, stream, 3);
      launch(Add{.out = Grad(sum, true), .a = a, .b = b}, stream);
      return values(sum);
    });
  }
}

}  // namespace
}  // namespace spool::testing
