#include "spool/kernels/attention.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"

// Kernels that have no form for CUDA yet.

namespace spool {
size_t AttentionForward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t AttentionBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t BiasBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t CachedAttention::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t Matmul::workspace_bytes(const CudaArchitecture&) const { return 0; }
}  // namespace spool
