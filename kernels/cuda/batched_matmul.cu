#include "spool/kernels/batched_matmul.h"

#include "spool/kernels/cuda/matmul.cuh"

namespace spool {

void run(const BatchedMatmul& k, CudaStream& stream) {
  if (k.c.view.numel() > 0) cuda::multiply(MatmulBatch(k), stream);
}

}  // namespace spool
