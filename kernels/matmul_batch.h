#pragma once

// The common form of Matmul and BatchedMatmul, by which both are computed: products of one shape,
// the first one, and how far the matrices of the others are from its own.

#include "spool/kernels/batched_matmul.h"
#include "spool/kernels/matmul.h"

namespace spool {

struct MatmulBatch {
  Matmul first;
  int64_t count = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0;  // elements from one matrix to the next

  MatmulBatch(const Matmul& k) : first(k) {}
  // Without bias.  Not for matrices without elements, whose extents do not show.
  explicit MatmulBatch(const BatchedMatmul&);
  Matmul at(int64_t i) const;
};

// Workspace of cuBLASLt, in bytes.
size_t cublas_workspace_bytes(const MatmulBatch&);

}  // namespace spool
