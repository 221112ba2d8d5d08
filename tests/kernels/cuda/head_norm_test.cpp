// runs: threads
// The norm of query and key heads on cuda.

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/head_norm_testing.h"

namespace spool::testing {
namespace {

class CudaHeadNorm : public OnCuda {};

Numbers all_of(int64_t N, int64_t D, DType t, bool adds, Stream& stream) {
  const HeadNormRun run(N, {.query = 3, .key = 1}, D, t, stream);
  const auto start = [&](const Shape& shape, DType type) {
    return adds ? normal(shape, type, stream, 9) : unset(shape, type, stream);
  };
  const Tensor dx = start(run.x.shape(), t), dq = start({D}, DType::f32), dk = start({D}, t);
  launch(run.backward(Grad(dx, adds), Grad(dq, adds), Grad(dk, adds)), stream);
  Numbers all;
  for (const Tensor& result : {run.y, run.r, dx, dq, dk}) append(all, result);
  if (adds) return all;
  const Tensor alone = start({D}, t);
  launch(run.backward({}, {}, alone), stream);
  EXPECT_EQ(values(alone), values(dk));
  launch(run.backward(run.dy, {}, {}), stream);
  EXPECT_EQ(values(run.dy), values(dx));
  return all;
}

// Heads of each size that has kernels, moved in packs and one by one; groups of tokens that are
// whole, and that are not.
TEST_F(CudaHeadNorm, MatchesTheCpu) {
  int number = 0;
  for (const DType t : cuda_types) {
    for (const auto [N, D] : std::vector<Extents>{
             {1, 8}, {9, 5}, {5, 32}, {3, 64}, {4, 100}, {6, 128}, {2, 201}, {2, 256}}) {
      const bool adds = ++number % 2;
      SCOPED_TRACE(sentence(name(t), ' ', N, " x ", D));
      const auto work = [=, N = N, D = D](Stream& stream) { return all_of(N, D, t, adds, stream); };
      expect_as_on_cpu(work, tolerance(t));
    }
  }
}

}  // namespace
}  // namespace spool::testing
