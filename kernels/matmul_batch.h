#pragma once

// The common form in which Matmul and BatchedMatmul are computed: products of one shape, given by
// the first and by the steps from its matrices to the next.

#include "spool/kernels/batched_matmul.h"
#include "spool/kernels/matmul.h"

namespace spool {

struct MatmulBatch {
  Matmul first;
  int64_t count = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0;  // elements from one matrix to the next

  MatmulBatch(const Matmul& k) : first(k) {}
  // Without bias.  The matrices must have elements: others do not show their extents.
  explicit MatmulBatch(const BatchedMatmul&);
  Matmul at(int64_t i) const;
};

// Workspace of cuBLASLt, in bytes.
size_t cublas_workspace_bytes(const MatmulBatch&);

}  // namespace spool
