#include "spool/kernels/reduce_sizes.h"

#include "spool/kernels/reduce.h"

namespace spool {

size_t SumAll::workspace_bytes(const CudaArchitecture&) const {
  return static_cast<size_t>(cuda::sum_pieces(x.numel())) * sizeof(double);
}

size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const {
  int64_t pieces = 0;
  for (const View& one : x) pieces += cuda::sum_pieces(one.numel());
  return static_cast<size_t>(pieces) * sizeof(double);
}

}  // namespace spool
