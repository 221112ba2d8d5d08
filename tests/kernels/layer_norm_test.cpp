// Layer normalisation on the cpu, against sums in f64.

#include "tests/kernels/layer_norm_testing.h"

namespace spool::testing {
namespace {

constexpr double eps = 1e-5;  // the default of the kernel

LayerNormInputs inputs(int64_t N, int64_t C, DType t, Stream& stream) {
  return {.x = normal({N, C}, t, stream, 1, 2),
          .weight = normal({C}, t, stream, 2),
          .bias = normal({C}, t, stream, 3),
          .dy = normal({N, C}, t, stream, 4)};
}

// The formulas of the header, one after the other.
struct Reference {
  Numbers y, mean, rstd, dx, dweight, dbias;

  Reference(const Numbers& x, const Numbers& weight, const Numbers& bias, const Numbers& dy)
      : y(x.size()), dx(x.size()), dweight(weight.size()), dbias(weight.size()) {
    const size_t C = weight.size();
    for (size_t begin = 0; begin < x.size(); begin += C) row(begin, x, weight, bias, dy);
  }
  void row(size_t begin, const Numbers& x, const Numbers& weight, const Numbers& bias,
           const Numbers& dy) {
    const size_t C = weight.size();
    double sum = 0, squares = 0, sum_g = 0, sum_gh = 0;
    for (size_t c = 0; c < C; ++c) sum += x[begin + c];
    const double centre = sum / static_cast<double>(C);
    for (size_t c = 0; c < C; ++c) squares += std::pow(x[begin + c] - centre, 2);
    const double r = 1 / std::sqrt(squares / static_cast<double>(C) + eps);
    mean.push_back(centre);
    rstd.push_back(r);
    for (size_t c = 0; c < C; ++c) {
      const double h = (x[begin + c] - centre) * r, g = dy[begin + c] * weight[c];
      y[begin + c] = h * weight[c] + bias[c];
      dweight[c] += dy[begin + c] * h;
      dbias[c] += dy[begin + c];
      sum_g += g;
      sum_gh += g * h;
    }
    for (size_t c = 0; c < C; ++c) {
      const double h = (x[begin + c] - centre) * r, g = dy[begin + c] * weight[c];
      const auto count = static_cast<double>(C);
      dx[begin + c] = r * (g - sum_g / count - h * sum_gh / count);
    }
  }
};

// No rows of one or two elements: their gradients are all cancellation.
const std::vector<Extents> some{{1, 5}, {7, 17}, {5, 1000}, {130, 300}};

TEST(LayerNorm, ForwardAndBackwardFollowTheirFormulas) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, C] : some) {
      SCOPED_TRACE(sentence(name(t), ' ', N, " x ", C));
      const LayerNormInputs in = inputs(N, C, t, stream);
      const LayerNormOutputs out(in, stream);
      const Reference wanted(values(in.x), values(in.weight), values(in.bias), values(in.dy));
      EXPECT_LT(difference(values(out.y), wanted.y), tolerance(t));
      EXPECT_LT(difference(values(out.mean), wanted.mean), tolerance(accumulator(t)));
      EXPECT_LT(difference(values(out.rstd), wanted.rstd), tolerance(accumulator(t)));
      expect_gradient({{N, C}, t}, stream, wanted.dx, [&](const Grad& dx) {
        LayerNormBackward k = layer_norm_backward(in, out);
        k.dx = dx;
        launch(k, stream);
      });
      for (const DType to : {t, accumulator(t)}) {
        expect_gradient({{C}, to}, stream, wanted.dweight, [&](const Grad& dweight) {
          LayerNormBackward k = layer_norm_backward(in, out);
          k.dweight = dweight;
          launch(k, stream);
        });
        expect_gradient({{C}, to}, stream, wanted.dbias, [&](const Grad& dbias) {
          LayerNormBackward k = layer_norm_backward(in, out);
          k.dbias = dbias;
          launch(k, stream);
        });
      }
    }
  }
}

TEST(LayerNorm, AnAbsentBiasIsZero) {
  CpuStream stream(64 << 20, 2);
  LayerNormInputs in = inputs(7, 17, DType::f32, stream);
  LayerNormInputs zero = in;
  zero.bias = normal({17}, DType::f32, stream, 3, 0);
  in.bias = {};
  EXPECT_EQ(values(LayerNormOutputs(in, stream).y), values(LayerNormOutputs(zero, stream).y));
}

// The variance is not a difference of large sums.
TEST(LayerNorm, StaysPreciseFarFromZero) {
  CpuStream stream(64 << 20, 2);
  LayerNormInputs in = inputs(7, 300, DType::f32, stream);
  const Tensor offset = unset(in.x.shape(), DType::f32, stream);
  launch(Fill{.out = offset, .value = 1000}, stream);
  launch(Add{.out = Grad(in.x, true), .a = offset}, stream);
  const Reference wanted(values(in.x), values(in.weight), values(in.bias), values(in.dy));
  EXPECT_LT(difference(values(LayerNormOutputs(in, stream).y), wanted.y), 1e-4);
}

TEST(LayerNorm, AbsentGradientsLeaveTheOthersUnchanged) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const LayerNormInputs in = inputs(130, 300, t, stream);
    const LayerNormOutputs out(in, stream);
    const auto gradients = [&](bool wants_dx, bool wants_dweight, bool wants_dbias) {
      const Tensor dx = unset({130, 300}, t, stream), dweight = unset({300}, t, stream);
      const Tensor dbias = unset({300}, t, stream);
      LayerNormBackward k = layer_norm_backward(in, out);
      if (wants_dx) k.dx = dx;
      if (wants_dweight) k.dweight = dweight;
      if (wants_dbias) k.dbias = dbias;
      launch(k, stream);
      return std::vector<Numbers>{values(dx), values(dweight), values(dbias)};
    };
    const auto all = gradients(true, true, true);
    for (int mask = 0; mask < 7; ++mask) {
      const auto part = gradients(mask & 1, mask & 2, mask & 4);
      for (size_t i = 0; i < 3; ++i) {
        if (mask >> i & 1) {
          EXPECT_EQ(part[i], all[i]);
        } else {
          for (const double x : part[i]) ASSERT_TRUE(std::isnan(x));
        }
      }
    }
  }
}

TEST(LayerNorm, DxMayBeWrittenOverDy) {
  CpuStream stream(64 << 20, 2);
  const LayerNormInputs in = inputs(130, 300, DType::f32, stream);
  const LayerNormOutputs out(in, stream);
  const Tensor dx = unset({130, 300}, DType::f32, stream),
               dweight = unset({300}, DType::f32, stream);
  const Tensor in_place = unset({300}, DType::f32, stream);
  LayerNormBackward k = layer_norm_backward(in, out);
  k.dx = dx;
  k.dweight = dweight;
  launch(k, stream);
  k.dx = in.dy;
  k.dweight = in_place;
  launch(k, stream);
  EXPECT_EQ(values(in.dy), values(dx));
  EXPECT_EQ(values(in_place), values(dweight));
}

TEST(LayerNorm, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const LayerNormInputs in = inputs(301, 517, t, stream);
      const LayerNormOutputs out(in, stream);
      const Tensor dx = unset({301, 517}, t, stream);
      const Tensor dweight = unset({517}, t, stream), dbias = unset({517}, t, stream);
      LayerNormBackward k = layer_norm_backward(in, out);
      k.dx = dx;
      k.dweight = dweight;
      k.dbias = dbias;
      launch(k, stream);
      Numbers all;
      for (const Tensor& result : {out.y, out.mean, out.rstd, dx, dweight, dbias}) {
        append(all, result);
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
