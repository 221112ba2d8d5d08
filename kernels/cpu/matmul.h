#pragma once

// How a product is cut into tiles, and the two ways to compute one.  Tiles depend on shapes alone
// and each is computed by one thread in one order, so the result has the same bits for any number
// of threads; the inner dimension is never cut.

#include "spool/kernels/matmul.h"

namespace spool::cpu {

struct Tiling {
  int64_t rows = 1, columns = 1;  // of a tile of c
  int64_t row_tiles = 1, column_tiles = 1;
  int64_t tiles() const { return row_tiles * column_tiles; }
};

Tiling tiling(const Matmul&);

// Bytes a thread may use while it computes a tile.
size_t tile_scratch(const Matmul&, const Tiling&);

// All tiles through oneDNN.  False, and nothing done, where it has no way for these types on this
// processor within the scratch, or is not in the build.
bool multiply_onednn(const Matmul&, const Tiling&, CpuStream&);

// Plain loops; any floating type.
void multiply_plain(const Matmul&, const Tiling&, CpuStream&);

}  // namespace spool::cpu
