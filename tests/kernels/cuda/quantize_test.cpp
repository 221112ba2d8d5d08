// runs: threads
// Rows in eight bits on cuda.

#include "spool/kernels/quantize.h"

#include "spool/kernels/copy.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaQuantize : public OnCuda {};

TEST_F(CudaQuantize, MatchesTheCpu) {
  for (const DType type : cuda_types) {
    for (const auto [N, C] : extents) {
      for (const float special : {0.0f, std::numeric_limits<float>::infinity()}) {
        expect_as_on_cpu(
            [=, N = N, C = C](Stream& stream) {
              const Tensor x = normal({N, C}, type, stream, 1), back = unset({N, C}, type, stream);
              const Tensor q({Shape{N, C}, DType::i8}, stream);
              const Tensor scale = unset({N}, DType::f32, stream);
              launch(Fill{.out = x.slice({0, 1}), .value = special}, stream);
              launch(Quantize{.q = q, .scale = scale, .x = x}, stream);
              launch(Dequantize{.x = back, .q = q, .scale = scale}, stream);
              Numbers all = values(back);
              append(all, q);
              append(all, scale);
              for (double& each : all) each = std::isfinite(each) ? each : 1234;
              return all;
            },
            1e-15);
      }
    }
  }
}

// A tensor that begins where no pack does has the bits of one that begins where one does.
TEST_F(CudaQuantize, TakesTensorsThatAreNotAligned) {
  constexpr int64_t N = 3, C = 301;
  for (const DType type : cuda_types) {
    const auto bits_from = [&](int64_t first) {
      const auto stream = cuda_stream();
      const auto rows = [&](DType t) {
        return Tensor({Shape{first + N * C}, t}, *stream).slice({first, first + N * C});
      };
      const Tensor x = rows(type).reshape({N, C}), back = rows(type).reshape({N, C});
      const Tensor q = rows(DType::i8).reshape({N, C}), scale = unset({N}, DType::f32, *stream);
      launch(Permute{.out = x, .in = normal({N, C}, type, *stream, 1), .order = {0, 1}}, *stream);
      launch(Quantize{.q = q, .scale = scale, .x = x}, *stream);
      launch(Dequantize{.x = back, .q = q, .scale = scale}, *stream);
      Numbers all = values(back);
      append(all, q);
      append(all, scale);
      return all;
    };
    EXPECT_EQ(bits_from(1), bits_from(0)) << name(type);
  }
}

}  // namespace
}  // namespace spool::testing
