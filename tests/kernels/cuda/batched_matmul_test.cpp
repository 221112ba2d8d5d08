// BatchedMatmul on cuda against the cpu.

#include "tests/kernels/batched_matmul_testing.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/include/cublasLt.h"
#endif

namespace spool::testing {
namespace {

class CudaBatchedMatmul : public OnCuda {};

constexpr BatchedTypes all_types[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

// Matrices that begin at multiples of 16 bytes and that do not; and without terms.
TEST_F(CudaBatchedMatmul, MatchesTheCpuInEveryForm) {
  for (const BatchedCase& c :
       {BatchedCase{5, 8, 16, 24}, {7, 3, 5, 9}, {1, 4, 4, 4}, {2, 3, 5, 0}}) {
    for (int i = 0; i < batched_forms; ++i) {
      const BatchedCase p = in_form(c, i);
      for (const BatchedTypes& t : all_types) {
        SCOPED_TRACE(sentence(p, ", ", name(t.in), " into ", name(t.out)));
        expect_as_on_cpu([&](Stream& stream) { return batched_product(p, t, stream); },
                         tolerance(t.out));
      }
    }
  }
}

TEST_F(CudaBatchedMatmul, MayBeEmpty) {
  const auto stream = cuda_stream();
  for (const BatchedCase& p : {BatchedCase{2, 0, 3, 4}, {2, 3, 0, 4}, {2, 0, 0, 0}}) {
    const Tensor c({Shape{p.count, p.M, p.N}}, *stream), a({Shape{p.count, p.M, p.K}}, *stream),
        b({Shape{p.count, p.K, p.N}}, *stream);
    launch(BatchedMatmul{.c = c, .a = a, .b = b}, *stream);
    stream->synchronize();
  }
}

TEST(CudaBatchedMatmulWorkspace, GrowsWithTheBatchUpTo32MiB) {
  const auto workspace = [](int64_t count) {
    const auto view = [=](int64_t rows, int64_t columns) {
      return View(nullptr, {Shape{count, rows, columns}, DType::bf16});
    };
    return BatchedMatmul{.c = view(60, 50), .a = view(60, 70), .b = view(70, 50)}.workspace_bytes(
        CudaArchitecture{});
  };
  EXPECT_EQ(workspace(0), 0u);
  EXPECT_EQ(workspace(3), 3 * workspace(1));
  EXPECT_EQ(workspace(1 << 20), size_t{32} << 20);
}

#if SPOOL_CUDA_EMULATED
TEST_F(CudaBatchedMatmul, AsksForAnAlgorithmOncePerFormAndCount) {
  const auto stream = cuda_stream();
  const auto asked = [&](const BatchedCase& p) {
    const BatchedTensors t(p, all_types[0], *stream);
    const int before = emulator::cublas_lt().heuristics;
    launch(t.kernel(p), *stream);
    stream->synchronize();
    return emulator::cublas_lt().heuristics - before;
  };
  EXPECT_EQ(asked({4, 8, 8, 8}), 1);
  EXPECT_EQ(asked({4, 8, 8, 8}), 0);
  EXPECT_EQ(asked({5, 8, 8, 8}), 1);
  EXPECT_EQ(asked(in_form({4, 8, 8, 8}, 16)), 1);  // one b
}
#endif

}  // namespace
}  // namespace spool::testing
