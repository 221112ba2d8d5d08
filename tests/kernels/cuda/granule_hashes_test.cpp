// runs: threads
// GranuleHashes on cuda: those of plain loops, and so of the cpu.

#include "spool/kernels/granule_hashes.h"

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/granule_hashes_testing.h"

namespace spool::testing {
namespace {

class CudaGranuleHashes : public OnCuda {};

TEST_F(CudaGranuleHashes, AreThoseOfPlainLoops) {
  for (const int64_t skip : {0, 1}) {
    in_every_order([&] {
      const auto stream = cuda_stream();
      const std::vector<Tensor> all = hashed_tensors(floating, skip, *stream);
      EXPECT_EQ(hashes(all, *stream), plain_hashes(all)) << skip;
    });
  }
}

TEST_F(CudaGranuleHashes, OfNothingAreNone) {
  const auto stream = cuda_stream();
  EXPECT_EQ(hashes({}, *stream), Hashes());
}

}  // namespace
}  // namespace spool::testing
