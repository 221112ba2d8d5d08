#pragma once

// Products by cuBLASLt.

#include "spool/kernels/matmul_batch.h"

namespace spool::cuda {

// Of matrices with elements.  Workspace: cublas_workspace_bytes().
void multiply(const MatmulBatch&, CudaStream&);

}  // namespace spool::cuda
