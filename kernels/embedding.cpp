#include "spool/kernels/embedding_sizes.h"

#include "spool/kernels/embedding.h"

namespace spool {

size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dweight) return 0;
  return cuda::TokenSort(tokens.numel(), dweight.view.shape().rows(), dy.shape().row()).bytes();
}

}  // namespace spool
