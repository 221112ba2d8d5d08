#include "spool/kernels/bias.h"

#include "spool/kernels/row_groups.h"

namespace spool {

size_t BiasBackward::workspace_bytes(const CudaArchitecture&) const {
  const int64_t N = dy.shape().rows(), C = dy.shape().row();
  return static_cast<size_t>(cuda::RowGroups(N, C).count * C) * sizeof(float);
}

}  // namespace spool
