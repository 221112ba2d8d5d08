// runs: numbers
// GELU on the cpu, in both forms, against f64.

#include "spool/kernels/gelu.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

// sqrt(2/pi) (x + 0.044715 x^3)
double inner(double x) { return 0.79788456080286536 * (x + 0.044715 * x * x * x); }

// Precise in the tails, where 1 + tanh would cancel.
double gelu(double x, GeluForm form) {
  if (form == GeluForm::exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return x / (1 + std::exp(-2 * inner(x)));
}

Numbers grid(double from, double to) {
  Numbers x;
  for (double at = from; at < to; at += 1.0 / 64) x.push_back(at);
  return x;
}

Tensor tensor_of(const Numbers& all, DType t, Stream& stream, const Shape& shape) {
  const Tensor exact = make_tensor<double>(shape, all, stream);
  Tensor out({shape, t}, stream);
  launch(Cast{.out = out, .in = exact}, stream);
  return out;
}

Tensor tensor_of(const Numbers& all, DType t, Stream& stream) {
  return tensor_of(all, t, stream, {static_cast<int64_t>(all.size())});
}

TEST(Gelu, ForwardIsPreciseInTheTails) {
  CpuStream stream(64 << 20, 2);
  const Numbers x = grid(-6, 6);
  for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
    for (const DType t : floating) {
      const Tensor in = tensor_of(x, t, stream), out = unset(in.shape(), t, stream);
      launch(GeluForward{.y = out, .x = in, .form = form}, stream);
      const Numbers rounded = values(in), y = values(out);
      for (size_t i = 0; i < y.size(); ++i) {
        const double wanted = gelu(rounded[i], form);
        ASSERT_LE(std::fabs(y[i] - wanted), tolerance(t) * std::fabs(wanted)) << rounded[i];
      }
    }
  }
}

TEST(Gelu, ReferenceOfTheTanhFormIsItsFormula) {
  for (const double x : grid(-3, 3)) {
    EXPECT_NEAR(gelu(x, GeluForm::tanh), x / 2 * (1 + std::tanh(inner(x))), 1e-15);
  }
}

TEST(Gelu, BackwardIsTheSlopeOfForward) {
  CpuStream stream(64 << 20, 2);
  const Numbers x = grid(-6, 6);
  const double h = 1e-4;
  for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
    for (const DType t : floating) {
      const Tensor in = tensor_of(x, t, stream), dy = normal(in.shape(), t, stream, 2);
      const Numbers rounded = values(in);
      Numbers wanted = values(dy);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const double near = gelu(rounded[i] + h, form) - gelu(rounded[i] - h, form);
        const double far = gelu(rounded[i] + 2 * h, form) - gelu(rounded[i] - 2 * h, form);
        wanted[i] *= (8 * near - far) / (12 * h);
      }
      const auto backward = [&](const Grad& dx) {
        launch(GeluBackward{.dx = dx, .dy = dy, .x = in, .form = form}, stream);
      };
      if (t != DType::f64) {
        expect_gradient({in.shape(), t}, stream, wanted, backward);
      } else {
        const Tensor dx = unset(in.shape(), t, stream);
        backward(dx);
        EXPECT_LT(difference(values(dx), wanted), 1e-10);
      }
    }
  }
}

// x + bias is exact in the numbers chosen, so each part is that of gelu without a bias.
TEST(Gelu, WithABiasIsThatOfTheSum) {
  CpuStream stream(64 << 20, 2);
  const Shape shape{45, 517};
  for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
    for (const DType t : floating) {
      const Tensor dy = normal(shape, t, stream, 2);
      Numbers x, bias, sums;
      for (int64_t i = 0; i < shape.numel(); ++i) x.push_back(static_cast<double>(i % 7) - 3);
      for (int64_t c = 0; c < shape.row(); ++c) bias.push_back(static_cast<double>(c % 5) / 4);
      for (size_t i = 0; i < x.size(); ++i) sums.push_back(x[i] + bias[i % bias.size()]);
      const Tensor from = tensor_of(x, t, stream, shape), b = tensor_of(bias, t, stream);
      const Tensor sum = tensor_of(sums, t, stream, shape);
      const Tensor y = unset(shape, t, stream), wanted_y = unset(shape, t, stream);
      launch(GeluForward{.y = y, .x = from, .bias = b, .form = form}, stream);
      launch(GeluForward{.y = wanted_y, .x = sum, .form = form}, stream);
      EXPECT_EQ(values(y), values(wanted_y));

      const Tensor dx = unset(shape, t, stream), wanted_dx = unset(shape, t, stream);
      const Tensor dbias = unset({shape.row()}, accumulator(t), stream);
      launch(GeluBackward{.dx = dx, .dy = dy, .x = from, .bias = b, .dbias = dbias, .form = form},
             stream);
      launch(GeluBackward{.dx = wanted_dx, .dy = dy, .x = sum, .form = form}, stream);
      EXPECT_EQ(values(dx), values(wanted_dx));
      const Numbers each = values(wanted_dx);
      Numbers columns(bias.size());
      for (size_t i = 0; i < each.size(); ++i) columns[i % columns.size()] += each[i];
      EXPECT_LT(difference(values(dbias), columns), tolerance(t));
    }
  }
}

TEST(Gelu, IsTheIdentityOrZeroFarFromZero) {
  CpuStream stream(64 << 20, 2);
  for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
    for (const DType t : floating) {
      const Tensor x = tensor_of({-1e4, -100, 0, 100, 1e4}, t, stream);
      const Tensor y = unset({5}, t, stream), dx = unset({5}, t, stream);
      launch(GeluForward{.y = y, .x = x, .form = form}, stream);
      const Numbers in = values(x);
      EXPECT_EQ(values(y), (Numbers{0, 0, 0, in[3], in[4]}));
      const Tensor one = tensor_of(Numbers(5, 1), t, stream);
      launch(GeluBackward{.dx = dx, .dy = one, .x = x, .form = form}, stream);
      EXPECT_EQ(values(dx), (Numbers{0, 0, 0.5, 1, 1}));
    }
  }
}

TEST(Gelu, AChunkHasTheBitsOfTheWhole) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const Tensor x = normal({301, 17}, t, stream, 1, 2), dy = normal({301, 17}, t, stream, 2);
    const Tensor whole = unset(x.shape(), t, stream), parts = unset(x.shape(), t, stream);
    for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
      launch(GeluBackward{.dx = whole, .dy = dy, .x = x, .form = form}, stream);
      for (const Range rows : split(301, 100)) {
        launch(
            GeluBackward{
                .dx = parts.slice(rows), .dy = dy.slice(rows), .x = x.slice(rows), .form = form},
            stream);
      }
      EXPECT_EQ(values(parts), values(whole));
    }
  }
}

TEST(Gelu, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Shape shape{301, 517};
      const Tensor a = normal(shape, t, stream, 1), b = normal(shape, t, stream, 2);
      const Tensor bias = normal({517}, t, stream, 3), dbias = unset({517}, t, stream);
      const Tensor y = unset(shape, t, stream), dx = unset(shape, t, stream);
      launch(GeluForward{.y = y, .x = a}, stream);
      launch(GeluBackward{.dx = dx, .dy = b, .x = a, .form = GeluForm::exact}, stream);
      Numbers all = values(y);
      append(all, dx);
      launch(GeluForward{.y = y, .x = a, .bias = bias}, stream);
      launch(GeluBackward{.dx = dx, .dy = b, .x = a, .bias = bias, .dbias = dbias}, stream);
      for (const Tensor& more : {y, dx, dbias}) append(all, more);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
