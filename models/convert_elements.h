#pragma once

// Elements on their way between a file and memory.

#include <cstddef>
#include <span>

#include "spool/models/stored_tensors.h"

namespace spool {

// F64, F32, F16 and BF16, which become one another by rounding to nearest.
bool is_floating(StoredType);

// Floating elements of one type, as those of another, at `out`, which is as large as they need.
void convert_elements(std::span<const std::byte> in, StoredType from, DType to, std::byte* out);

// A row-major matrix of elements of 1, 2, 4 or 8 bytes.
struct Extents {
  size_t rows = 0, columns = 0;
};

struct Columns {
  size_t begin = 0, end = 0;
};

// Some columns of a matrix become the rows of one: element (r, begin + c) that of (c, r).
void transpose_elements(const std::byte* in, Extents, Columns, size_t element_bytes,
                        std::byte* out);

}  // namespace spool
