// runs: numbers
// Rows in eight bits on the cpu.

#include "spool/kernels/quantize.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

struct Rows {
  Tensor q, scale, back;
};

Rows quantized(const Tensor& x, Stream& stream) {
  const Rows r{.q = Tensor({x.shape(), DType::i8}, stream),
               .scale = unset({x.shape().rows()}, DType::f32, stream),
               .back = unset(x.shape(), x.dtype(), stream)};
  launch(Quantize{.q = r.q, .scale = r.scale, .x = x}, stream);
  launch(Dequantize{.x = r.back, .q = r.q, .scale = r.scale}, stream);
  return r;
}

TEST(Quantize, IsWithinHalfAUnitOfEachRow) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, C] : extents) {
      const Tensor x = normal({N, C}, t, stream, 1);
      const Rows r = quantized(x, stream);
      const Numbers in = values(x), q = values(r.q), scale = values(r.scale), out = values(r.back);
      for (int64_t n = 0; n < N; ++n) {
        double largest = 0;
        for (int64_t c = 0; c < C; ++c) largest = std::max(largest, std::fabs(at(in, n * C + c)));
        EXPECT_FLOAT_EQ(static_cast<float>(at(scale, n)), static_cast<float>(largest / 127));
        const double rounding = t == DType::bf16 ? 0x1p-8 * largest : 1e-6 * largest;
        for (int64_t i = n * C; i < (n + 1) * C; ++i) {
          ASSERT_LE(std::fabs(at(in, i) - at(out, i)), at(scale, n) / 2 + rounding);
          ASSERT_LE(std::fabs(at(q, i)), 127);
        }
      }
    }
  }
}

TEST(Quantize, RowsOfZerosAndRowsThatAreNotFinite) {
  CpuStream stream(1 << 20, 1);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = INFINITY;
  const std::vector<float> rows{0, -0.0f, 0, 1, nan, 2, 1, -infinity, 2, 127, 63.5f, -127};
  const Rows r = quantized(make_tensor<float>(Shape{4, 3}, rows, stream), stream);
  const Numbers back = values(r.back);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(back[i], 0);
  for (size_t i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(back[i])) << "is not hidden";
  EXPECT_EQ(Numbers(back.begin() + 9, back.end()), (Numbers{127, 64, -127}));
}

TEST(Quantize, RefusesArgumentsThatDoNotFit) {
  CpuStream stream(1 << 20, 1);
  const Tensor x({Shape{2, 3}}, stream), q({Shape{2, 3}, DType::i8}, stream);
  const Tensor scale({Shape{2}}, stream), longer({Shape{3}}, stream);
  expect_error(ErrorKind::invalid, {"quantize: q is f32 (2, 3)", "i8 (2, 3)"},
               [&] { launch(Quantize{.q = x, .scale = scale, .x = x}, stream); });
  expect_error(ErrorKind::invalid, {"quantize: scale is f32 (3)", "f32 (2)"},
               [&] { launch(Quantize{.q = q, .scale = longer, .x = x}, stream); });
  expect_error(ErrorKind::invalid, {"dequantize: x is i8 (2, 3)", "convert it first"},
               [&] { launch(Dequantize{.x = q, .q = q, .scale = scale}, stream); });
}

TEST(Quantize, TakesNoRowsAndEmptyRows) {
  CpuStream stream(1 << 20, 1);
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}}) {
    EXPECT_EQ(values(quantized(normal(shape, DType::f32, stream, 1), stream).back).size(), 0u);
  }
}

TEST(Quantize, BitsDoNotDependOnTheNumberOfThreads) {
  expect_same_for_any_threads([](Stream& stream) {
    const Rows r = quantized(normal({301, 517}, DType::bf16, stream, 1), stream);
    Numbers all = values(r.q);
    append(all, r.scale);
    append(all, r.back);
    return all;
  });
}

}  // namespace
}  // namespace spool::testing
