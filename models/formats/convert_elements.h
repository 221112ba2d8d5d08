#pragma once

// Converts and transposes elements between the layouts of files and of memory.

#include <cstddef>
#include <optional>
#include <span>

#include "spool/models/formats/stored_tensors.h"

namespace spool {

// Whether it is F64, F32, F16 or BF16, which convert to one another, rounding to nearest.
bool is_floating(StoredType);

// Converts floating elements; `out` has room for all of them.
void convert_elements(std::span<const std::byte> in, StoredType from, DType to, std::byte* out);

// The index of the first element that is not finite; nothing if all are.
std::optional<size_t> first_not_finite(std::span<const std::byte>, StoredType);
// The index of the first finite element that its conversion made infinite.
std::optional<size_t> first_overflow(std::span<const std::byte> in, StoredType from,
                                     std::span<const std::byte> out, DType to);
// The value of an element.
double element_at(std::span<const std::byte>, StoredType, size_t index);

// A row-major matrix of elements of 1, 2, 4 or 8 bytes.
struct Elements {
  const std::byte* data = nullptr;
  size_t rows = 0, columns = 0;
  size_t bytes = 0;  // of one element
};

// Element (r, c) goes to element c * out_row + r.
void transpose_elements(const Elements&, std::byte* out, size_t out_row);

}  // namespace spool
