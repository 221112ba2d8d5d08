#pragma once

// Matrix products with few rows, which take as long as reading b: b is read once, and nothing is
// packed.  A piece is some rows of b; pieces depend only on shapes, and one thread forms each sum.

#include "spool/kernels/matmul.h"

namespace spool::cpu {

// Whether the product has few rows, and b in memory has a row for each column of c.
bool has_few_rows(const Matmul&);

void multiply_few_rows(const Matmul&, CpuStream&);

}  // namespace spool::cpu
