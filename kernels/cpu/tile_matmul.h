#pragma once

// Products of tiles in cache, for kernels that fuse a product with something else:
//   c[m,n] (+)= sum_k a[m,k] b[k,n]
// Rows are computed in blocks of six against a few vectors of columns, so that all sums of a block
// stay in registers.  A block may skip columns and terms, which saves the half that a causal mask
// removes.  Sums run over k in order, whatever the blocks.
//
// Tiles are aligned to vectors, and their rows are a whole number of vectors apart.  c and a have
// room for a whole number of blocks; the numbers beyond the requested rows do not matter.

#include "spool/kernels/cpu/vector.h"
#include "spool/runtime/shape.h"

namespace spool::cpu {

constexpr int64_t block_vectors = vector_bytes == 64 ? 4 : 2;
constexpr int64_t block_rows = 6;

// Row-major.
template <class S>
struct Tile {
  S* data = nullptr;
  int64_t row = 0;  // elements from one row to the next
};

// A tile, or the transpose of one: element (m, k) is at m * row + k * column.
template <class S>
struct LeftTile {
  const S* data = nullptr;
  int64_t row = 0, column = 1;
};

template <class S>
LeftTile<S> as_is(const Tile<S>& t) {
  return {t.data, t.row, 1};
}
template <class S>
LeftTile<S> transposed(const Tile<S>& t) {
  return {t.data, 1, t.row};
}

// The part of a block of rows to compute: the terms of its sums, and its columns in whole vectors.
struct BlockPart {
  Range terms, columns;
};

template <class S>
struct TileProduct {
  Tile<S> c;
  LeftTile<S> a;
  Tile<S> b;
  int64_t rows = 0;
  bool accumulate = false;
};

template <class S, int vectors>
void multiply_block(const TileProduct<S>& p, int64_t m, int64_t n, Range terms) {
  using V = typename Vector<S>::type;
  constexpr int64_t lanes = Vector<S>::lanes;
  V sums[block_rows][vectors] = {};
  const S* a = p.a.data + m * p.a.row + terms.begin * p.a.column;
  const S* b = p.b.data + terms.begin * p.b.row + n;
  for (int64_t k = terms.begin; k < terms.end; ++k, a += p.a.column, b += p.b.row) {
    V right[vectors];
    for (int v = 0; v < vectors; ++v) right[v] = *reinterpret_cast<const V*>(b + v * lanes);
    for (int r = 0; r < block_rows; ++r) {
      for (int v = 0; v < vectors; ++v) sums[r][v] += a[r * p.a.row] * right[v];
    }
  }
  for (int r = 0; r < block_rows; ++r) {
    V* c = reinterpret_cast<V*>(p.c.data + (m + r) * p.c.row + n);
    for (int v = 0; v < vectors; ++v) c[v] = p.accumulate ? c[v] + sums[r][v] : sums[r][v];
  }
}

// Vectors in the next group when `left` remain in a row.  The last two groups have similar sizes,
// as a group of one or two vectors would wait for loads.
constexpr int64_t group_of(int64_t left) {
  return left <= block_vectors ? left : left < 2 * block_vectors ? (left + 1) / 2 : block_vectors;
}

// part_of(m) returns the BlockPart of the block of rows that starts at m.
template <class S, class PartOf>
void multiply(const TileProduct<S>& p, PartOf&& part_of) {
  constexpr int64_t lanes = Vector<S>::lanes;
  for (int64_t m = 0; m < p.rows; m += block_rows) {
    const BlockPart part = part_of(m);
    for (int64_t n = part.columns.begin; n < part.columns.end;) {
      const int64_t vectors = group_of((part.columns.end - n) / lanes);
      if (vectors == 1) multiply_block<S, 1>(p, m, n, part.terms);
      if (vectors == 2) multiply_block<S, 2>(p, m, n, part.terms);
      if constexpr (block_vectors > 2) {
        if (vectors == 3) multiply_block<S, 3>(p, m, n, part.terms);
        if (vectors == 4) multiply_block<S, 4>(p, m, n, part.terms);
      }
      n += vectors * lanes;
    }
  }
}

}  // namespace spool::cpu
