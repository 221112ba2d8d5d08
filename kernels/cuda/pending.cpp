#include "spool/kernels/adamw.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/reduce.h"

// Kernels that have no form for CUDA yet.

namespace spool {
size_t AttentionForward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t AttentionBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t CachedAttention::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t Matmul::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SumAll::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const { return 0; }
}  // namespace spool
