#pragma once

// Helpers of ops that move elements along a dimension: where it is, and the index notation of
// operands that have parts along it.

#include <span>
#include <string>

#include "spool/autograd/op.h"

namespace spool {

// The dimension, counted from 0; -1 and so on count from the end.  Throws if there is none such.
int dimension(const char* op, const Spec& x, int dim);

// The largest unit that all lengths are multiples of, 0 if all are 0.
int64_t common_unit(std::span<const int64_t> lengths);
// The notation's term for a tensor of this rank whose dimension `dim` has parts of these lengths,
// each cut in units of this length: "n(2z+z)e".  Parts without elements are left out; a dimension
// without any is needed whole.
std::string term_of_parts(int rank, int dim, std::span<const int64_t> lengths, int64_t unit);

// Whether a view that begins with this element is as aligned as the fastest kernels ask for, 16
// bytes; others are copied.
inline bool is_aligned(int64_t element, DType type) {
  return element * static_cast<int64_t>(size_of(type)) % 16 == 0;
}

// x seen as rows x (extent of dim) x width: the products of the dimensions before and after it.
struct Along {
  int64_t rows = 1, extent = 1, width = 1;
  Along(const Shape& x, int dim);
};

}  // namespace spool
