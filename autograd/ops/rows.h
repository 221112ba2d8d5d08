#pragma once

// Tensors (N.., C) seen as N rows, and the shapes of tensors with a number for each row.

#include "spool/runtime/tensor.h"

namespace spool {

// (N, C)
inline View as_rows(const View& t) {
  return {t.data(), {Shape{t.shape().rows(), t.shape().row()}, t.dtype()}};
}

// All elements, in one dimension.
inline View as_numbers(const View& t) { return {t.data(), {Shape{t.numel()}, t.dtype()}}; }

// (N..), the shape without its last dimension; (1) of a row.
inline Shape without_rows(const Shape& s) {
  if (s.rank() <= 1) return {1};
  if (s.rank() == 2) return {s[0]};
  if (s.rank() == 3) return {s[0], s[1]};
  return {s[0], s[1], s[2]};
}

}  // namespace spool
