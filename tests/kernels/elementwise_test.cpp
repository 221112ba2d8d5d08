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

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor made(const Numbers& numbers, Stream& stream) {
  return make_tensor<double>({std::ssize(numbers)}, numbers, stream);
}

Tensor cast(const Tensor& in, DType to, Stream& stream) {
  const Tensor out({in.shape(), to}, stream);
  launch(Cast{.out = out, .in = in}, stream);
  return out;
}

TEST(Elementwise, CastsToF16AndBack) {
  CpuStream stream(64 << 20, 2);
  for (const DType from : floating) {
    const Tensor in = normal({40001}, from, stream, 1, 3), out = cast(in, DType::f16, stream);
    Numbers wanted = values(in);
    for (double& x : wanted) x = f16(static_cast<float>(x));
    EXPECT_EQ(values(out), wanted);
    for (const DType to : {DType::f64, DType::f32, DType::f16}) {
      EXPECT_EQ(values(cast(out, to, stream)), wanted);
    }
  }
}

TEST(Elementwise, CastsToI8RoundAndSaturate) {
  CpuStream stream(64 << 20, 2);
  const Numbers wanted{0, 2, 2, -2, 127, -128, 127, -128, 127, -128, 0};
  const Tensor in =
      made({0.5, 1.5, 2.5, -2.5, 127, -128, 127.5, -129, infinity, -infinity, nan}, stream);
  for (const DType from : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor out = cast(cast(in, from, stream), DType::i8, stream);
    EXPECT_EQ(values(out), wanted) << name(from);
    for (const DType to : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i8}) {
      EXPECT_EQ(values(cast(out, to, stream)), wanted) << name(to);
    }
  }
}

TEST(Elementwise, RefusesToComputeInTypesThatAreOnlyStored) {
  for (const DType type : {DType::f16, DType::i8}) {
    MetaStream stream(Machine{});
    const Tensor x({Shape{4}, type}, stream);
    expect_error(ErrorKind::invalid, {"add: a is", name(type), "convert it first"},
                 [&] { launch(Add{.out = x, .a = x}, stream); });
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
