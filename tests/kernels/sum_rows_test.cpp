// SumRows and Spread on the cpu against plain loops.

#include "spool/kernels/sum_rows.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

TEST(SumRows, AddsUpEachRow) {
  CpuStream stream(64 << 20, 2);
  for (const DType type : floating) {
    for (const auto& [N, C] : extents) {
      const Tensor x = normal({N, C}, type, stream, 1);
      const Numbers all = values(x);
      Numbers wanted(static_cast<size_t>(N));
      for (int64_t i = 0; i < N * C; ++i) wanted[static_cast<size_t>(i / C)] += 0.5 * at(all, i);
      for (const DType to : {type, accumulator(type)}) {
        expect_gradient({{N}, to}, stream, wanted, [&, columns = C](const Grad& y) {
          launch(SumRows{.y = y, .x = x, .C = columns, .factor = 0.5}, stream);
        });
      }
    }
  }
}

TEST(SumRows, OfNothingIsZero) {
  CpuStream stream(1 << 20, 1);
  const Tensor x({Shape{2, 0}, DType::f32}, stream), y = unset({2}, DType::f32, stream);
  launch(SumRows{.y = y, .x = x, .C = 0}, stream);
  EXPECT_EQ(values(y), (Numbers{0, 0}));
}

TEST(SumRows, NamesWhatDoesNotFit) {
  CpuStream stream(1 << 20, 1);
  const Tensor x({Shape{2, 3}, DType::f32}, stream), y({Shape{2}, DType::f32}, stream);
  expect_error(
      ErrorKind::invalid,
      {"sum_rows: x f32 (2, 3) and y f32 (2) do not fit: each element of y is the sum of 2"},
      [&] { launch(SumRows{.y = y, .x = x, .C = 2}, stream); });
  expect_error(ErrorKind::invalid,
               {"spread: the elements of dx f32 (2) must be a multiple of those of dy f32 (2, 3)"},
               [&] { launch(Spread{.dx = y, .dy = x}, stream); });
}

TEST(Spread, GivesEachElementTheNumberOfItsRow) {
  CpuStream stream(64 << 20, 2);
  const auto expect = [&](DType from, DType to, int64_t N, int64_t C) {
    SCOPED_TRACE(sentence(name(from), " to ", name(to), ", ", N, " rows of ", C));
    const Tensor dy = normal({N}, from, stream, 1);
    const Numbers all = values(dy);
    Numbers wanted(static_cast<size_t>(N * C));
    for (int64_t i = 0; i < N * C; ++i) wanted[static_cast<size_t>(i)] = -0.25 * at(all, i / C);
    expect_gradient({{N, C}, to}, stream, wanted, [&](const Grad& dx) {
      launch(Spread{.dx = dx, .dy = dy, .factor = -0.25}, stream);
    });
  };
  for (const auto& [N, C] : {Extents{1, 1}, {1, 40000}, {300, 130}, {7, 17}}) {
    expect(DType::f64, DType::f64, N, C);
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const DType to : {DType::f32, DType::bf16}) expect(from, to, N, C);
    }
  }
}

TEST(SumRows, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType type : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({700, 300}, type, stream, 1), y = unset({700}, type, stream);
      launch(SumRows{.y = y, .x = x, .C = 300}, stream);
      launch(Spread{.dx = add_to(x), .dy = y}, stream);
      return values(x);
    });
  }
}

}  // namespace
}  // namespace spool::testing
