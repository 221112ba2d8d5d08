#include "spool/kernels/batched_matmul.h"

#include "spool/kernels/cpu/matmul.h"

namespace spool {

void run(const BatchedMatmul& k, CpuStream& stream) {
  if (k.c.view.numel() > 0) cpu::multiply(MatmulBatch(k), stream);
}

size_t BatchedMatmul::workspace_bytes(const CpuArchitecture& architecture) const {
  return c.view.numel() == 0 ? 0 : cpu::products_workspace(MatmulBatch(*this), architecture);
}

}  // namespace spool
