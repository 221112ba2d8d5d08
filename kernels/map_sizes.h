#pragma once

// How the gradient of a broadcast input of map() is summed: over pieces, which depend on shapes
// alone, and whose partial sums are then added up in order.

#include <cstdint>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/map.h"
#include "spool/kernels/row_groups.h"
#include "spool/runtime/integer.h"

namespace spool::map_details {

// The number of rows, which may have no elements.
inline int64_t count_rows(const Shape& y) {
  int64_t n = 1;
  for (int i = 0; i + 1 < y.rank(); ++i) n *= y[i];
  return n;
}

// Elements of an input that is broadcast like this to y.
inline int64_t elements(Broadcast broadcast, const Shape& y) {
  switch (broadcast) {
    case Broadcast::row:
      return y.row();
    case Broadcast::column:
      return count_rows(y);
    case Broadcast::number:
      return 1;
    default:
      return y.numel();
  }
}

inline size_t aligned_bytes(int64_t numbers, size_t each) {
  return round_up(static_cast<size_t>(numbers) * each, size_t{64});
}

// Pieces of a sum on the cpu: of whole rows or, for a sum to one number, of elements.
struct SumPieces {
  int64_t N, C;
  cpu::RowPieces pieces;

  SumPieces(const Shape& y, Broadcast broadcast)
      : N(broadcast == Broadcast::number ? y.numel() : count_rows(y)),
        C(broadcast == Broadcast::number ? 1 : y.row()),
        pieces(N, C) {}

  // Bytes of the partial sums: for a row, of each column, in `type`; for a number, one, in f64.
  static size_t bytes(const Shape& y, Broadcast broadcast, DType type) {
    const SumPieces sums(y, broadcast);
    if (broadcast == Broadcast::row)
      return aligned_bytes(sums.pieces.count * sums.C, size_of(type));
    return broadcast == Broadcast::number ? aligned_bytes(sums.pieces.count, sizeof(double)) : 0;
  }
};

// On cuda, elements of a piece of a sum to one number.
constexpr int64_t number_piece = 16384;

// On cuda, bytes of the partial sums: f32 for a row, f64 for a number.
inline size_t cuda_sum_bytes(Broadcast broadcast, const Shape& y) {
  if (broadcast == Broadcast::row) {
    return aligned_bytes(cuda::RowGroups(count_rows(y), y.row()).count * y.row(), sizeof(float));
  }
  if (broadcast == Broadcast::number) {
    return aligned_bytes(ceil_div(y.numel(), number_piece), sizeof(double));
  }
  return 0;
}

}  // namespace spool::map_details
