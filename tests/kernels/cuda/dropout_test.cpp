// Dropout and NormalFill on cuda draw the numbers of the cpu.

#include "spool/kernels/dropout.h"
#include "spool/kernels/normal.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaDropout : public OnCuda {};
class CudaNormal : public OnCuda {};

constexpr float p = 0.3f;
constexpr uint32_t node = 5;

Tensor some_random(Stream& stream) { return integers({4}, {12, -34, 56, 7}, stream); }

Tensor window(int64_t skip, const Tensor& all) { return all.slice({skip, all.shape()[0]}); }

TEST_F(CudaDropout, DropsWhatTheCpuDrops) {
  for (const DType type : cuda_types) {
    for (const int64_t n : {1, 5, 8, 17, 2100}) {
      for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4},
                                  (int64_t{1} << 34) - 9, (int64_t{1} << 33) + 2}) {
        for (const int64_t skip : {0, 1}) {
          const auto drop = [=](Stream& stream) {
            const Tensor x = window(skip, normal({skip + n, 1}, type, stream, 1));
            const Tensor y = window(skip, unset({skip + n, 1}, type, stream));
            launch(Dropout{.y = y,
                           .x = x,
                           .random = some_random(stream),
                           .node = node,
                           .first = first,
                           .p = p},
                   stream);
            return values(y);
          };
          CpuStream cpu(on_both, 1);
          const auto cuda = cuda_stream();
          ASSERT_EQ(drop(*cuda), drop(cpu)) << n << " from " << first << ", unaligned by " << skip;
        }
      }
    }
  }
}

TEST_F(CudaDropout, EveryKeyAndCounterMatchesTheCpu) {
  for (size_t changed = 0; changed < 4; ++changed) {
    const auto drop = [=](Stream& stream) {
      std::vector<int32_t> random{1, 2, 3, 4};
      random[changed] = -9;
      const Tensor x = normal({100}, DType::f32, stream, 1), y = unset({100}, DType::f32, stream);
      launch(Dropout{.y = y, .x = x, .random = integers({4}, random, stream), .p = 0.5f}, stream);
      return values(y);
    };
    CpuStream cpu(on_both, 1);
    const auto cuda = cuda_stream();
    EXPECT_EQ(drop(*cuda), drop(cpu));
  }
}

TEST_F(CudaDropout, AddsToAGradient) {
  for (const DType type : cuda_types) {
    for (const DType to : {type, DType::f32}) {
      expect_as_on_cpu(
          [=](Stream& stream) {
            const Tensor dy = normal({1003}, type, stream, 1), dx = normal({1003}, to, stream, 2);
            launch(Dropout{.y = Grad(dx, /*add=*/true),
                           .x = dy,
                           .random = some_random(stream),
                           .node = node,
                           .first = 6,
                           .p = p},
                   stream);
            return values(dx);
          },
          tolerance(type));
    }
  }
}

TEST_F(CudaDropout, RefusesAProbabilityOfOne) {
  const auto stream = cuda_stream();
  const Tensor x = normal({4}, DType::f32, *stream, 1), random = some_random(*stream);
  expect_error(ErrorKind::invalid, {"not in [0, 1)"},
               [&] { launch(Dropout{.y = x, .x = x, .random = random, .p = 1}, *stream); });
}

// To the last digits, also near zero.
TEST_F(CudaNormal, MatchesTheCpu) {
  for (const DType type : cuda_types) {
    for (const int64_t n : {1, 3, 8, 13, 20000}) {
      for (const int64_t skip : {0, 1}) {
        expect_as_on_cpu(
            [=](Stream& stream) {
              const Tensor out = window(skip, unset({skip + n, 1}, type, stream));
              launch(
                  NormalFill{.out = out, .deviation = 0.02f, .seed = 77ull << 32 | 5, .tensor = 3},
                  stream);
              return values(out);
            },
            type == DType::f32 ? 3e-7 : tolerance(type));
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
