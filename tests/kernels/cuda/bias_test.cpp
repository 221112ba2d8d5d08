// BiasBackward on cuda.

#include "spool/kernels/bias.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaBias : public OnCuda {};

// One group of rows and several, whole and partial packs, one tile of columns and several.
const std::vector<Extents> some{{1, 1},    {0, 5},    {3, 5},     {7, 17},   {33, 8},
                                {65, 264}, {100, 33}, {130, 300}, {40, 2056}};

TEST_F(CudaBias, MatchesTheCpu) {
  for (const DType type : cuda_types) {
    for (const auto& [rows, columns] : some) {
      for (const DType to : {type, DType::f32}) {
        for (const int64_t skip : {0, 1}) {
          expect_as_on_cpu(
              [N = rows, C = columns, type, to, skip](Stream& stream) {
                const Tensor dy = normal({skip + N * C, 1}, type, stream, 1)
                                      .slice({skip, skip + N * C})
                                      .reshape({N, C});
                const Tensor set = unset({C}, to, stream), added = normal({C}, to, stream, 2);
                launch(BiasBackward{.dbias = set, .dy = dy}, stream);
                launch(BiasBackward{.dbias = Grad(added, /*add=*/true), .dy = dy}, stream);
                Numbers all = values(set);
                append(all, added);
                return all;
              },
              tolerance(to));
        }
      }
    }
  }
}

TEST_F(CudaBias, AlignmentDoesNotChangeItsBits) {
  const auto stream = cuda_stream();
  const auto sums = [&](int64_t skip) {
    const Tensor room({Shape{skip + 200 * 64, 1}, DType::bf16}, *stream);
    const Tensor dy = room.slice({skip, skip + 200 * 64});
    launch(Cast{.out = dy, .in = normal({200 * 64, 1}, DType::f32, *stream, 1)}, *stream);
    const Tensor dbias = unset({64}, DType::f32, *stream);
    launch(BiasBackward{.dbias = dbias, .dy = dy.reshape({200, 64})}, *stream);
    return values(dbias);
  };
  EXPECT_EQ(sums(1), sums(0));
}

}  // namespace
}  // namespace spool::testing
