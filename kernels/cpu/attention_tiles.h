#pragma once

// The rows of a head in a packed tensor, and copies of them as tiles in the accumulator type, for
// attention on the cpu.  Beyond its rows and columns a tile has arbitrary numbers, which never
// affect a result.

#include <algorithm>
#include <cstddef>

#include "spool/kernels/attention.h"
#include "spool/kernels/cpu/scalar.h"
#include "spool/kernels/cpu/tile_matmul.h"

namespace spool::cpu {

// Rows of one head of one sequence: in a tensor (B, T, heads D), or `row` elements apart anywhere.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t row = 0;

  HeadRows(T* rows, int64_t D) : data(rows), row(D) {}
  HeadRows(const View& t, int64_t b, int64_t head, int64_t D)
      : data(t.as<T>() + b * t.shape()[1] * t.shape().row() + head * D), row(t.shape().row()) {}
  T* at(int64_t t) const { return data + t * row; }
};

template <class S>
void fill(const Tile<S>& t, int64_t rows, S value) {
  std::fill(t.data, t.data + rows * t.row, value);
}

// to[r,d] = factor * from[r,d]
template <class S, class T>
void pack(const Tile<S>& to, const HeadRows<const T>& from, Range rows, int64_t D, S factor = 1) {
  for (int64_t r = 0; r < rows.size(); ++r) {
    const T* in = from.at(rows.begin + r);
    S* out = to.data + r * to.row;
#pragma omp simd
    for (int64_t d = 0; d < D; ++d) out[d] = factor * static_cast<S>(in[d]);
  }
}

template <class S, size_t step = 1>
void transpose_square(typename Vector<S>::type* rows) {
  constexpr size_t lanes = Vector<S>::lanes;
  if constexpr (step < lanes) {
    for (size_t r = 0; r < lanes; ++r) {
      if (!(r & step)) trade<S, step>(rows[r], rows[r + step]);
    }
    transpose_square<S, 2 * step>(rows);
  }
}

// to[d,r] = from[r,d], in whole vectors of rows.
template <class S>
void transpose(const Tile<S>& to, const Tile<S>& from, int64_t rows, int64_t D) {
  using V = typename Vector<S>::type;
  constexpr int64_t lanes = Vector<S>::lanes;
  for (int64_t row = 0; row < rows; row += lanes) {
    for (int64_t column = 0; column < D; column += lanes) {
      V square[lanes];
      for (int64_t r = 0; r < lanes; ++r) {
        const S* in = from.data + (row + r) * from.row + column;
        square[r] = *reinterpret_cast<const V*>(in);
      }
      transpose_square<S>(square);
      for (int64_t d = 0; d < std::min(lanes, D - column); ++d) {
        *reinterpret_cast<V*>(to.data + (column + d) * to.row + row) = square[d];
      }
    }
  }
}

}  // namespace spool::cpu
