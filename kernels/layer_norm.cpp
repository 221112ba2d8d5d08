#include "spool/kernels/layer_norm.h"

#include <algorithm>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/layer_norm_sizes.h"
#include "spool/kernels/row_groups.h"

namespace spool {

size_t LayerNormBackward::workspace_bytes(const CpuArchitecture&) const {
  const int64_t C = x.shape().row();
  const cpu::RowPieces pieces(x.shape().rows(), C);
  return static_cast<size_t>(pieces.count * partial_sums() * C) * size_of(accumulator(x.dtype()));
}

// Room for the partial sums of all groups: of both gradients or, if a row does not fit a block, of
// one at a time.
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const {
  const int64_t N = x.shape().rows(), C = x.shape().row();
  if (partial_sums() == 0) return 0;
  const int64_t groups = std::max(cuda::LayerNormGroups(N, C, x.dtype()).count * partial_sums(),
                                  cuda::RowGroups(N, C).count);
  return static_cast<size_t>(groups * C) * sizeof(float);
}

}  // namespace spool
