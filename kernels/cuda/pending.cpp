#include "spool/kernels/adamw.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/cuda/attention_plan.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"

// Kernels that have no form for CUDA yet.

namespace spool {
size_t AttentionForward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) return 0;
  return cuda::fused_forward_bytes(cuda::attention_shape(qkv, y, heads));
}
size_t AttentionBackward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) return 0;
  const cuda::AttentionShape all = cuda::attention_shape(qkv, y, heads);
  return cuda::fused_backward_bytes(all, cuda::cut_backward(all));
}
size_t BiasBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t CachedAttention::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SumAll::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const { return 0; }
}  // namespace spool
