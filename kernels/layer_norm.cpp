#include "spool/kernels/layer_norm_sizes.h"

#include "spool/kernels/layer_norm.h"
#include "spool/kernels/row_groups.h"

namespace spool {

// Either all groups of both sums, or, where rows do not fit a block, of one sum at a time.
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const {
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const int64_t sums = int64_t{bool(dweight)} + int64_t{bool(dbias)};
  if (sums == 0) return 0;
  const int64_t groups =
      std::max(cuda::LayerNormGroups(N, C, x.dtype()).count * sums, cuda::RowGroups(N, C).count);
  return static_cast<size_t>(groups * C) * sizeof(float);
}

}  // namespace spool
