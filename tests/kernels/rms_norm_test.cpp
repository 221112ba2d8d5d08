// Normalisation by the root mean square on the cpu, against sums in f64.

#include "spool/kernels/rms_norm.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr double eps = 1e-5;  // the default of the kernel

struct RmsRun {
  Tensor x, weight, dy, y, r;

  RmsRun(int64_t N, int64_t C, DType t, Stream& stream)
      : x(normal({N, C}, t, stream, 1, 2)),
        weight(normal({C}, t, stream, 2)),
        dy(normal({N, C}, t, stream, 3)),
        y(unset({N, C}, t, stream)),
        r(unset({N}, accumulator(t), stream)) {
    launch(RmsNormForward{.y = y, .r = r, .x = x, .weight = weight}, stream);
  }
  RmsNormBackward backward(const Grad& dx, const Grad& dweight) const {
    return {.dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight, .r = r};
  }
};

// The formulas of the header, one after the other.
struct Reference {
  Numbers y, r, dx, dweight;

  explicit Reference(const RmsRun& of) {
    const Numbers x = values(of.x), weight = values(of.weight), dy = values(of.dy);
    const size_t C = weight.size();
    dweight.resize(C);
    for (size_t begin = 0; begin < x.size(); begin += C) {
      double squares = 0, products = 0;
      for (size_t c = 0; c < C; ++c) {
        squares += x[begin + c] * x[begin + c];
        products += dy[begin + c] * weight[c] * x[begin + c];
      }
      const double root = 1 / std::sqrt(squares / static_cast<double>(C) + eps);
      r.push_back(root);
      for (size_t c = 0; c < C; ++c) {
        const double at = x[begin + c], g = dy[begin + c] * weight[c];
        y.push_back(at * root * weight[c]);
        dx.push_back(root * (g - at * root * root * products / static_cast<double>(C)));
        dweight[c] += dy[begin + c] * at * root;
      }
    }
  }
};

// No rows of one or two elements: their gradients are all cancellation.
const std::vector<Extents> some{{1, 5}, {7, 17}, {5, 1000}, {130, 300}};

TEST(RmsNorm, ForwardAndBackwardFollowTheirFormulas) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, C] : some) {
      SCOPED_TRACE(sentence(name(t), ' ', N, " x ", C));
      const RmsRun run(N, C, t, stream);
      const Reference wanted(run);
      EXPECT_LT(difference(values(run.y), wanted.y), tolerance(t));
      EXPECT_LT(difference(values(run.r), wanted.r), tolerance(accumulator(t)));
      expect_gradient({{N, C}, t}, stream, wanted.dx,
                      [&](const Grad& dx) { launch(run.backward(dx, {}), stream); });
      for (const DType to : {t, accumulator(t)}) {
        expect_gradient({{C}, to}, stream, wanted.dweight,
                        [&](const Grad& dweight) { launch(run.backward({}, dweight), stream); });
      }
    }
  }
}

// In bf16 the weight is applied before the only rounding: as near to exact numbers as bf16 allows.
TEST(RmsNorm, RoundsOnce) {
  CpuStream stream(64 << 20, 2);
  const RmsRun run(7, 300, DType::bf16, stream);
  const Reference wanted(run);
  const Numbers y = values(run.y);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_LE(std::fabs(y[i] - wanted.y[i]), std::fabs(wanted.y[i]) * (0x1p-8 + 1e-6));
  }
}

TEST(RmsNorm, DxMayBeWrittenOverDy) {
  CpuStream stream(64 << 20, 2);
  const RmsRun run(130, 300, DType::f32, stream);
  const Tensor dx = unset({130, 300}, DType::f32, stream);
  const Tensor apart = unset({300}, DType::f32, stream), over = unset({300}, DType::f32, stream);
  launch(run.backward(dx, apart), stream);
  launch(run.backward(run.dy, over), stream);
  EXPECT_EQ(values(run.dy), values(dx));
  EXPECT_EQ(values(over), values(apart));
}

TEST(RmsNorm, ARowOfZerosIsZero) {
  CpuStream stream(64 << 20, 2);
  const Tensor x({{1, 8}, DType::f32}, stream), y = unset({1, 8}, DType::f32, stream);
  const Tensor weight = normal({8}, DType::f32, stream, 1), r = unset({1}, DType::f32, stream);
  launch(Fill{.out = x, .value = 0}, stream);
  launch(RmsNormForward{.y = y, .r = r, .x = x, .weight = weight, .eps = 1e-6}, stream);
  EXPECT_EQ(values(y), Numbers(8));
  EXPECT_NEAR(values(r)[0], 1000, 0.01);
}

TEST(RmsNorm, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const RmsRun run(301, 517, t, stream);
      const Tensor dx = unset({301, 517}, t, stream), dweight = unset({517}, t, stream);
      launch(run.backward(dx, dweight), stream);
      Numbers all;
      for (const Tensor& result : {run.y, run.r, dx, dweight}) append(all, result);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
