#include "spool/kernels/cuda/attention.cuh"

#include "spool/kernels/attention_sizes.h"

namespace spool {

size_t cuda::attention_backward_bytes(const AttentionBackward& k) {
  return k.dqkv ? static_cast<size_t>(k.lse.numel()) * sizeof(float) : 0;
}

size_t AttentionForward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) return 0;
  return cuda::fused_forward_bytes(cuda::attention_shape(qkv, y, heads));
}

size_t AttentionBackward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) return cuda::attention_backward_bytes(*this);
  const cuda::AttentionShape all = cuda::attention_shape(qkv, y, heads);
  return cuda::fused_backward_bytes(all, cuda::cut_backward(all));
}

}  // namespace spool
