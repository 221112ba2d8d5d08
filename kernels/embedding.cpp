#include "spool/kernels/embedding.h"

#include "spool/kernels/embedding_sizes.h"

namespace spool {

// The lists of kernels/cpu/embedding.cpp: a first position for each row of the vocabulary, a next
// one for each token.
size_t EmbeddingBackward::workspace_bytes(const CpuArchitecture&) const {
  if (!dweight) return 0;
  return static_cast<size_t>(dweight.view.shape().rows() + tokens.numel()) * sizeof(int32_t);
}

size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dweight) return 0;
  return cuda::TokenSort(tokens.numel(), dweight.view.shape().rows(), dy.shape().row()).bytes();
}

}  // namespace spool
