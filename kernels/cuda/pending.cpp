#include "spool/kernels/adamw.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"

// Kernels that have no form for CUDA yet.

namespace spool {
size_t BiasBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SumAll::workspace_bytes(const CudaArchitecture&) const { return 0; }
size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const { return 0; }
}  // namespace spool
