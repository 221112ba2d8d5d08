#include "spool/kernels/reduce.h"

#include <span>

#include "spool/kernels/reduce_sizes.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// Bytes of one f64 sum for each piece of each tensor; a piece has at most `piece` elements.
size_t piece_sum_bytes(std::span<const View> all, int64_t piece) {
  int64_t pieces = 0;
  for (const View& x : all) pieces += ceil_div(x.numel(), piece);
  return static_cast<size_t>(pieces) * sizeof(double);
}

}  // namespace

size_t SumAll::workspace_bytes(const CpuArchitecture&) const {
  return piece_sum_bytes({&x, 1}, cpu::sum_piece);
}
size_t SumAll::workspace_bytes(const CudaArchitecture&) const {
  return piece_sum_bytes({&x, 1}, cuda::sum_piece);
}

size_t SquaredNorm::workspace_bytes(const CpuArchitecture&) const {
  return piece_sum_bytes(x, cpu::sum_piece);
}
size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const {
  return piece_sum_bytes(x, cuda::sum_piece);
}

}  // namespace spool
