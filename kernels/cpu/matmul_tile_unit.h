#pragma once

// Products in bf16 on a processor's tile unit: how they are cut, the workspace, and the loops over
// tasks.  The cut depends only on shapes, apart from the rows of a task where there would be fewer
// tasks than threads; neither changes the bits of an element (tile_unit/products.h).

#include "spool/kernels/matmul_batch.h"

namespace spool::cpu {

// Whether a processor computes the product so.
bool on_tile_unit(const Matmul&, const CpuArchitecture&);

size_t tile_unit_workspace(const MatmulBatch&, const CpuArchitecture&);

// c must have elements.
void multiply_on_tile_unit(const MatmulBatch&, CpuStream&);

}  // namespace spool::cpu
