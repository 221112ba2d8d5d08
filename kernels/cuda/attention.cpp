#include "spool/kernels/cuda/attention.h"

namespace spool {

size_t cuda::attention_backward_bytes(const AttentionBackward& k) {
  return k.dqkv ? static_cast<size_t>(k.lse.numel()) * sizeof(float) : 0;
}

size_t AttentionForward::workspace_bytes(const CudaArchitecture&) const { return 0; }

size_t AttentionBackward::workspace_bytes(const CudaArchitecture&) const {
  return cuda::attention_backward_bytes(*this);
}

}  // namespace spool
