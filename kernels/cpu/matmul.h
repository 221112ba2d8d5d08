#pragma once

// Computes products: those in bf16 on a processor's tile unit (matmul_tile_unit.h), and others in
// tiles of c, in two ways.  These tiles depend only on shapes, and one thread computes each in a
// fixed order, so the result has the same bits for any number of threads.  The inner dimension is
// never cut.

#include "spool/kernels/matmul_batch.h"

namespace spool::cpu {

struct Tiling {
  int64_t rows = 1, columns = 1;  // extents of a tile of c
  int64_t row_tiles = 1, column_tiles = 1;
  int64_t tiles() const { return row_tiles * column_tiles; }
};

Tiling tiling(const Matmul&);

// Whether plain loops are as fast as a call of oneDNN.  They compute such a product, so a program
// without larger ones does not wait until oneDNN has compiled its kernels.
bool is_small(const Matmul&);

// Bytes of workspace of a thread while it computes a tile: about those of the tile's operands, and
// at most 1 MiB more than those of a bf16 tile's sums.
size_t tile_scratch(const Matmul&, const Tiling&);

// Bytes of workspace for multiply().
size_t products_workspace(const MatmulBatch&, const CpuArchitecture&);

// Computes all tiles, of products with elements, by one of the two ways.
void multiply(const MatmulBatch&, CpuStream&);

// Computes all tiles with oneDNN.  Returns false and does nothing if oneDNN is not in the build, or
// does not support these types on this processor within the scratch.
bool multiply_onednn(const MatmulBatch&, const Tiling&, CpuStream&);

// Computes all tiles with plain loops; any floating type.
void multiply_plain(const MatmulBatch&, const Tiling&, CpuStream&);

}  // namespace spool::cpu
