#pragma once

// The product for a few rows, where reading b takes all the time: b is streamed once, and nothing
// is packed.  Pieces are rows of b, of shape alone, and every sum is formed by one thread.

#include "spool/kernels/matmul.h"

namespace spool::cpu {

// Whether the product is one of those: b as it lies in memory has a row for each column of c.
bool has_few_rows(const Matmul&);

void multiply_few_rows(const Matmul&, CpuStream&);

}  // namespace spool::cpu
