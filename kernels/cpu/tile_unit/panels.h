#pragma once

// Copies of a matrix in the order in which the tile unit reads it.  A panel is 32 rows of a left
// factor, or 32 columns of a right one; a step of it is 32 terms of those, two tiles of 1 KiB: rows
// (or columns) 0 to 15, and 16 to 31.  A tile of a left factor has 32 terms in each of its rows;
// one of a right factor has in each row a pair of terms of 16 columns.  What lies beyond the matrix
// is 0 and not read.

#include "spool/kernels/cpu/tile_unit/vectors.h"

namespace spool::cpu::tiles {

constexpr int64_t block = 32;         // rows, columns and terms of a step
constexpr int64_t tile_bytes = 1024;  // a half of a step
constexpr int64_t step_bytes = 2 * tile_bytes;

// A matrix of bf16 with rows `stride` elements apart.
struct Matrix {
  const uint16_t* at;
  int64_t stride;
};

// The rows that a step has of a matrix, each with so many elements.
struct Extent {
  int64_t rows = block, columns = block;
  SPOOL_TILES_INLINE bool whole() const { return rows == block && columns == block; }
};

SPOOL_TILES_INLINE Words joined(const Quarter& a, const Quarter& b, const Quarter& c,
                                const Quarter& d) {
  const auto first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
  const auto second = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                 15);
}

// 4 words of each of 16 rows, transposed to 4 rows of 16 words.
SPOOL_TILES_INLINE void transpose_quarter(const char* from, int64_t stride, char* to) {
  Words z[4];
  for (int j = 0; j < 4; ++j) {
    const auto row = [&](int i)
                         SPOOL_TILES_LAMBDA { return load<Quarter>(from + (j + i) * stride); };
    z[j] = joined(row(0), row(4), row(8), row(12));
  }
  const auto low = [](const Words& x, const Words& y) SPOOL_TILES_LAMBDA {
    return bits_of<LongWords>(
        __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29));
  };
  const auto high = [](const Words& x, const Words& y) SPOOL_TILES_LAMBDA {
    return bits_of<LongWords>(
        __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31));
  };
  const LongWords a = low(z[0], z[1]), b = high(z[0], z[1]);
  const LongWords c = low(z[2], z[3]), d = high(z[2], z[3]);
  store(to, __builtin_shufflevector(a, c, 0, 8, 2, 10, 4, 12, 6, 14));
  store(to + 64, __builtin_shufflevector(a, c, 1, 9, 3, 11, 5, 13, 7, 15));
  store(to + 128, __builtin_shufflevector(b, d, 0, 8, 2, 10, 4, 12, 6, 14));
  store(to + 192, __builtin_shufflevector(b, d, 1, 9, 3, 11, 5, 13, 7, 15));
}

// 16 rows of 16 words, `stride` bytes apart, to the 16 rows of a tile, transposed.
SPOOL_TILES_INLINE void transpose(const char* from, int64_t stride, char* to) {
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    transpose_quarter(from + 16 * quarter, stride, to + 256 * quarter);
  }
}
SPOOL_TILES_INLINE void transpose(const uint16_t* from, int64_t stride, char* to) {
  transpose(reinterpret_cast<const char*>(from), 2 * stride, to);
}

// A step of which a part lies beyond its matrix, filled up with zeros.
class FilledUp {
 public:
  SPOOL_TILES_INLINE FilledUp(const Matrix& m, const Extent& extent) {
    for (int64_t i = 0; i < block; ++i) store(rows_ + block * i, Halves{});
    for (int64_t i = 0; i < extent.rows; ++i) {
      std::memcpy(rows_ + block * i, m.at + i * m.stride,
                  static_cast<size_t>(extent.columns) * sizeof(uint16_t));
    }
  }
  SPOOL_TILES_INLINE Matrix matrix() const { return {rows_, block}; }

 private:
  alignas(64) uint16_t rows_[block * block];
};

// Calls pack with the step of the matrix, or with a copy that is filled up.
template <class F>
SPOOL_TILES_INLINE void with_whole_step(const Matrix& m, const Extent& extent, const F& pack) {
  if (extent.whole()) [[likely]]
    return pack(m);
  const FilledUp filled(m, extent);
  pack(filled.matrix());
}

// A step of a left panel, from rows in memory.
SPOOL_TILES_INLINE void left_step(const Matrix& from, const Extent& extent, char* to) {
  if (extent.whole()) [[likely]] {
    for (int64_t i = 0; i < block; ++i) {
      store(to + 64 * i, load<Halves>(from.at + i * from.stride));
    }
    return;
  }
  for (int64_t i = 0; i < block; ++i) store(to + 64 * i, Halves{});
  for (int64_t i = 0; i < extent.rows; ++i) {
    std::memcpy(to + 64 * i, from.at + i * from.stride,
                static_cast<size_t>(extent.columns) * sizeof(uint16_t));
  }
}

// Columns 8 L to 8 L + 3 of two rows, in turn, for each of four L; and 8 L + 4 to 8 L + 7.
SPOOL_TILES_INLINE LongWords lower_pairs(const Halves& x, const Halves& y) {
  return bits_of<LongWords>(__builtin_shufflevector(x, y, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41,
                                                    10, 42, 11, 43, 16, 48, 17, 49, 18, 50, 19, 51,
                                                    24, 56, 25, 57, 26, 58, 27, 59));
}
SPOOL_TILES_INLINE LongWords upper_pairs(const Halves& x, const Halves& y) {
  return bits_of<LongWords>(__builtin_shufflevector(x, y, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13,
                                                    45, 14, 46, 15, 47, 20, 52, 21, 53, 22, 54, 23,
                                                    55, 28, 60, 29, 61, 30, 62, 31, 63));
}

// Two rows, of a term each, to a row of two right tiles: the pairs of 16 columns and of 16 more.
SPOOL_TILES_INLINE void pair_rows(const Halves& even, const Halves& odd, char* to) {
  const LongWords low = lower_pairs(even, odd), high = upper_pairs(even, odd);
  store(to, __builtin_shufflevector(low, high, 0, 1, 8, 9, 2, 3, 10, 11));
  store(to + tile_bytes, __builtin_shufflevector(low, high, 4, 5, 12, 13, 6, 7, 14, 15));
}

// A step of a right panel, from rows of terms in memory.
SPOOL_TILES_INLINE void right_step(const Matrix& from, const Extent& extent, char* to) {
  with_whole_step(from, extent, [&](const Matrix& m) SPOOL_TILES_LAMBDA {
    for (int64_t p = 0; p < 16; ++p) {
      const uint16_t* row = m.at + 2 * p * m.stride;
      pair_rows(load<Halves>(row), load<Halves>(row + m.stride), to + 64 * p);
    }
  });
}

// A step of a right panel, from columns in memory: each row of `from` is a column.
SPOOL_TILES_INLINE void right_step_of_columns(const Matrix& from, const Extent& extent, char* to) {
  with_whole_step(from, extent, [&](const Matrix& m) SPOOL_TILES_LAMBDA {
    transpose(m.at, m.stride, to);
    transpose(m.at + 16 * m.stride, m.stride, to + tile_bytes);
  });
}

// A step of a left panel, from terms in memory: each row of `from` is a term.
SPOOL_TILES_INLINE void left_step_of_terms(const Matrix& from, const Extent& extent, char* to) {
  with_whole_step(from, extent, [&](const Matrix& m) SPOOL_TILES_LAMBDA {
    alignas(64) char pairs[2][16][64];  // of a lower and an upper half of four parts
    for (int64_t p = 0; p < 16; ++p) {
      const auto even = load<Halves>(m.at + 2 * p * m.stride);
      const auto odd = load<Halves>(m.at + (2 * p + 1) * m.stride);
      store(pairs[0][p], lower_pairs(even, odd));
      store(pairs[1][p], upper_pairs(even, odd));
    }
    for (int64_t part = 0; part < 4; ++part) {  // columns 8 part on
      for (int64_t half = 0; half < 2; ++half) {
        transpose_quarter(pairs[half][0] + 16 * part, 64, to + 64 * (8 * part + 4 * half));
      }
    }
  });
}

}  // namespace spool::cpu::tiles
