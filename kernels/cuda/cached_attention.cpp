#include "spool/kernels/cached_attention_sizes.h"

namespace spool {

size_t CachedAttention::workspace_bytes(const CudaArchitecture&) const {
  const CachedExtents e(*this);
  const int64_t most = cuda::pieces(e.P, e.P);
  if (e.T >= cuda::many_queries || most <= 1) return 0;
  return static_cast<size_t>(e.B * e.H * e.T * most * cuda::piece_floats(e.D)) * sizeof(float);
}

}  // namespace spool
