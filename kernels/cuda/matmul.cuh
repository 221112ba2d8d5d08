#pragma once

// Matrix products by cuBLASLt.

#include "spool/kernels/matmul_batch.h"

namespace spool::cuda {

// The matrices must have elements.  Workspace: cublas_workspace_bytes().
void multiply(const MatmulBatch&, CudaStream&);

}  // namespace spool::cuda
