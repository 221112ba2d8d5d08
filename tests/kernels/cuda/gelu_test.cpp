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
