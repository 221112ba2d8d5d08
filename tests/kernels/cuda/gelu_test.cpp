// Gelu on cuda.

#include "spool/kernels/gelu.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaGelu : public OnCuda {};

const std::vector<GeluForm> forms{GeluForm::tanh, GeluForm::exact};

// Elements [skip, skip + n) of a larger tensor, wide enough to reach the tails.
Tensor window(int64_t skip, int64_t n, DType type, Stream& stream, uint64_t seed) {
  return normal({skip + n, 1}, type, stream, seed, 3).slice({skip, skip + n});
}

void for_every_case(const std::function<void(int64_t skip, int64_t n, DType, GeluForm)>& body) {
  for (const DType type : cuda_types) {
    for (const GeluForm form : forms) {
      for (const int64_t n : {1, 7, 8, 9, 2055}) {
        for (const int64_t skip : {0, 1}) body(skip, n, type, form);
      }
    }
  }
}

TEST_F(CudaGelu, ForwardMatchesTheCpu) {
  for_every_case([](int64_t skip, int64_t n, DType type, GeluForm form) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          const Tensor x = window(skip, n, type, stream, 1), y = unset({n}, type, stream);
          launch(GeluForward{.y = y, .x = x, .form = form}, stream);
          return values(y);
        },
        tolerance(type));
  });
}

TEST_F(CudaGelu, BackwardMatchesTheCpu) {
  for_every_case([](int64_t skip, int64_t n, DType type, GeluForm form) {
    for (const DType to : {type, DType::f32}) {
      expect_as_on_cpu(
          [=](Stream& stream) {
            const Tensor x = window(skip, n, type, stream, 1),
                         dy = window(skip, n, type, stream, 2);
            const Tensor set = unset({n}, to, stream), added = normal({n}, to, stream, 3);
            launch(GeluBackward{.dx = set, .dy = dy, .x = x, .form = form}, stream);
            launch(GeluBackward{.dx = Grad(added, /*add=*/true), .dy = dy, .x = x, .form = form},
                   stream);
            Numbers all = values(set);
            append(all, added);
            return all;
          },
          tolerance(type));
    }
  });
}

struct BiasCase {
  int64_t N, C, skip;  // skip: rows of others before the tensors
};

void for_every_bias(const std::function<void(const BiasCase&, DType, GeluForm)>& body) {
  for (const DType type : cuda_types) {
    for (const GeluForm form : forms) {
      for (const BiasCase& c :
           {BiasCase{1, 1, 0}, {5, 7, 1}, {70, 264, 0}, {33, 257, 1}, {0, 8, 1}}) {
        body(c, type, form);
      }
    }
  }
}

Tensor rows(const BiasCase& c, DType type, Stream& stream, uint64_t seed) {
  return normal({c.skip + c.N, c.C}, type, stream, seed, 2).slice({c.skip, c.skip + c.N});
}

TEST_F(CudaGelu, WithABiasMatchesTheCpu) {
  for_every_bias([](const BiasCase& c, DType type, GeluForm form) {
    for (const DType to : {type, DType::f32}) {
      expect_as_on_cpu(
          [=](Stream& stream) {
            const Tensor x = rows(c, type, stream, 1), dy = rows(c, type, stream, 2);
            const Tensor bias = normal({c.C}, type, stream, 3), y = unset(x.shape(), type, stream);
            const Tensor dx = unset(x.shape(), to, stream), added = normal({c.C}, to, stream, 4);
            const Tensor dbias = unset({c.C}, to, stream), more = normal(x.shape(), to, stream, 5);
            launch(GeluForward{.y = y, .x = x, .bias = bias, .form = form}, stream);
            GeluBackward k{.dx = dx, .dy = dy, .x = x, .bias = bias, .dbias = dbias, .form = form};
            launch(k, stream);
            k.dx = add_to(more), k.dbias = add_to(added);
            launch(k, stream);
            Numbers all = values(y);
            for (const Tensor& t : {dx, dbias, more, added}) append(all, t);
            return all;
          },
          tolerance(type));
    }
  });
}

TEST_F(CudaGelu, EitherGradientMayBeAbsent) {
  const auto stream = cuda_stream();
  const Tensor x = normal({37, 24}, DType::bf16, *stream, 1), bias = x.slice({0, 1});
  const Tensor dy = normal({37, 24}, DType::bf16, *stream, 2);
  const Tensor dx = unset(x.shape(), DType::bf16, *stream),
               alone = unset(x.shape(), DType::bf16, *stream);
  const Tensor dbias = unset({24}, DType::f32, *stream), sum = unset({24}, DType::f32, *stream);
  launch(GeluBackward{.dx = dx, .dy = dy, .x = x, .bias = bias, .dbias = dbias}, *stream);
  launch(GeluBackward{.dx = alone, .dy = dy, .x = x, .bias = bias}, *stream);
  launch(GeluBackward{.dx = {}, .dy = dy, .x = x, .bias = bias, .dbias = sum}, *stream);
  EXPECT_EQ(values(alone), values(dx));
  EXPECT_EQ(values(sum), values(dbias));
}

TEST_F(CudaGelu, WithABiasYMayBeXAndDxMayBeXOrDy) {
  const auto stream = cuda_stream();
  const auto rows_of = [&](uint64_t seed) { return normal({37, 24}, DType::bf16, *stream, seed); };
  const Tensor bias = normal({24}, DType::bf16, *stream, 3), x = rows_of(1), dy = rows_of(2);
  const Tensor y = unset(x.shape(), DType::bf16, *stream),
               dx = unset(x.shape(), DType::bf16, *stream);
  const Tensor dbias = unset({24}, DType::f32, *stream), sum = unset({24}, DType::f32, *stream);
  launch(GeluForward{.y = y, .x = x, .bias = bias}, *stream);
  launch(GeluBackward{.dx = dx, .dy = dy, .x = x, .bias = bias, .dbias = dbias}, *stream);
  const Tensor over_dy = rows_of(2), over_x = rows_of(1), y_over_x = rows_of(1);
  launch(GeluForward{.y = y_over_x, .x = y_over_x, .bias = bias}, *stream);
  EXPECT_EQ(values(y_over_x), values(y));
  launch(GeluBackward{.dx = over_dy, .dy = over_dy, .x = x, .bias = bias, .dbias = sum}, *stream);
  EXPECT_EQ(values(over_dy), values(dx));
  EXPECT_EQ(values(sum), values(dbias));
  launch(GeluBackward{.dx = over_x, .dy = dy, .x = over_x, .bias = bias, .dbias = sum}, *stream);
  EXPECT_EQ(values(over_x), values(dx));
  EXPECT_EQ(values(sum), values(dbias));
}

TEST_F(CudaGelu, DxMayBeWrittenOverDy) {
  const auto stream = cuda_stream();
  const Tensor x = normal({301}, DType::bf16, *stream, 1),
               dy = normal({301}, DType::bf16, *stream, 2);
  const Tensor dx = unset({301}, DType::bf16, *stream);
  launch(GeluBackward{.dx = dx, .dy = dy, .x = x}, *stream);
  launch(GeluBackward{.dx = dy, .dy = dy, .x = x}, *stream);
  EXPECT_EQ(values(dy), values(dx));
}

// The error is relative to each number, as the tails are small.
TEST_F(CudaGelu, ForwardIsPreciseInTheTails) {
  std::vector<float> grid;
  for (float x = -6; x < 6; x += 1.0f / 64) grid.push_back(x);
  for (const GeluForm form : forms) {
    const auto forward = [&](Stream& stream) {
      const Tensor x = make_tensor<float>({static_cast<int64_t>(grid.size())}, grid, stream);
      const Tensor y = unset(x.shape(), DType::f32, stream);
      launch(GeluForward{.y = y, .x = x, .form = form}, stream);
      return values(y);
    };
    CpuStream cpu(on_both, 1);
    const auto cuda = cuda_stream();
    const Numbers wanted = forward(cpu), found = forward(*cuda);
    for (size_t i = 0; i < grid.size(); ++i) {
      ASSERT_LE(std::fabs(found[i] - wanted[i]), 1e-5 * std::fabs(wanted[i])) << grid[i];
    }
  }
}

TEST_F(CudaGelu, IsTheIdentityOrZeroFarFromZero) {
  const auto stream = cuda_stream();
  const std::vector<float> far{-1e4f, -100, 0, 100, 1e4f};
  for (const GeluForm form : forms) {
    const Tensor x = make_tensor<float>({5}, far, *stream);
    const Tensor one = make_tensor<float>({5}, std::vector<float>(5, 1), *stream);
    const Tensor y = unset({5}, DType::f32, *stream), dx = unset({5}, DType::f32, *stream);
    launch(GeluForward{.y = y, .x = x, .form = form}, *stream);
    launch(GeluBackward{.dx = dx, .dy = one, .x = x, .form = form}, *stream);
    EXPECT_EQ(values(y), (Numbers{0, 0, 0, 100, 1e4}));
    EXPECT_EQ(values(dx), (Numbers{0, 0, 0.5, 1, 1}));
  }
}

}  // namespace
}  // namespace spool::testing
