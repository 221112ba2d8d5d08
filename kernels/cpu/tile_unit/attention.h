#pragma once

// What attention forward and backward on the tile unit share: which keys are seen, and numbers that
// are infinite or NaN.

#include "spool/kernels/cpu/tile_unit/attention_kernels.h"
#include "spool/kernels/cpu/tile_unit/exponential.h"
#include "spool/kernels/cpu/tile_unit/products.h"

namespace spool::cpu::tiles {

typedef int32_t Mask16 __attribute__((vector_size(64)));  // 0 or -1

SPOOL_TILES_INLINE int64_t at_least(int64_t x, int64_t min) { return x > min ? x : min; }

constexpr Words places = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
SPOOL_TILES_INLINE Words places_from(int64_t i) { return places + static_cast<uint32_t>(i); }

// Packing and transposing, once for each unit: they are long, and called for much work.
template <class Unit>
struct Steps {
  [[gnu::noinline]] static void left(const Matrix& from, const Extent& extent, char* to) {
    left_step(from, extent, to);
  }
  [[gnu::noinline]] static void left_of_terms(const Matrix& from, const Extent& extent, char* to) {
    left_step_of_terms(from, extent, to);
  }
  [[gnu::noinline]] static void right(const Matrix& from, const Extent& extent, char* to) {
    right_step(from, extent, to);
  }
  [[gnu::noinline]] static void right_of_columns(const Matrix& from, const Extent& extent,
                                                 char* to) {
    right_step_of_columns(from, extent, to);
  }
  // 16 rows of 16 numbers, `stride` apart.
  [[gnu::noinline]] static void transpose(const float* from, int64_t stride, float* to) {
    tiles::transpose(reinterpret_cast<const char*>(from),
                     stride * static_cast<int64_t>(sizeof(float)), reinterpret_cast<char*>(to));
  }
};

// The keys that each of 32 queries sees, one interval each.  A query beyond the text sees none.
class Sight {
 public:
  SPOOL_TILES_INLINE Sight(const AttentionHead& h, int64_t query) {
    least_ = h.T;
    for (int64_t i = 0; i < block; ++i) {
      const int64_t t = query + i, end = t >= h.T ? 0 : h.causal ? t + 1 : h.T;
      const int64_t first = h.first && t < h.T ? h.first[t] : 0;
      first_[i] = static_cast<uint32_t>(first);
      count_[i] = static_cast<uint32_t>(end - first);
      if (t < h.T) least_ = at_most(first, least_);
      all_.begin = at_least(first, all_.begin);
      all_.end = i ? at_most(end, all_.end) : end;
      most_ = at_least(end, most_);
    }
  }
  // The steps of 32 of these keys of which a query may see one.
  SPOOL_TILES_INLINE Interval steps(const Interval& keys) const {
    const int64_t first = at_least(least_ - keys.begin, 0);
    const int64_t end = at_most(most_, keys.end) - keys.begin;
    if (first >= end) return {};
    return {first / block, steps_of(end)};
  }
  // Whether every query sees all of the 32 keys.
  SPOOL_TILES_INLINE bool sees_all(int64_t key) const {
    return key >= all_.begin && key + block <= all_.end;
  }
  SPOOL_TILES_INLINE bool sees(int64_t i, int64_t key) const {
    return static_cast<uint32_t>(key) - first_[i] < count_[i];
  }
  // Which of 16 keys are hidden from a query.
  SPOOL_TILES_INLINE Mask16 hidden_keys(int64_t i, int64_t key) const {
    return places_from(key) - first_[i] >= count_[i] + Words{};
  }
  // From which of 16 queries a key is hidden.
  SPOOL_TILES_INLINE Mask16 hiding_queries(int64_t i, int64_t key) const {
    const Words place = static_cast<uint32_t>(key) - load<Words>(first_ + i);
    return place >= load<Words>(count_ + i);
  }

 private:
  alignas(64) uint32_t first_[block];
  alignas(64) uint32_t count_[block];
  Interval all_;  // keys that every query sees
  int64_t least_, most_ = 0;
};

template <class V>
SPOOL_TILES_INLINE bool has_any(const V& mask) {
  const auto words = bits_of<LongWords>(mask);
  uint64_t found = 0;
  for (int i = 0; i < 8; ++i) found |= words[i];
  return found != 0;
}

// Clears what is infinite or NaN in a panel, and tells whether there was any.  So a product with
// the weight of a hidden key, 0, is 0; where the key is seen, add_unbounded() adds the term.
SPOOL_TILES_INLINE bool clear_unbounded(char* panel, int64_t bytes) {
  const Halves exponent = Halves{} + uint16_t{0x7f80};
  Halves any = {};
  for (int64_t at = 0; at < bytes; at += 64) {
    const auto x = load<Halves>(panel + at);
    const auto unbounded = bits_of<Halves>((x & exponent) == exponent);
    store(panel + at, x & ~unbounded);
    any |= unbounded;
  }
  return has_any(any);
}

SPOOL_TILES_INLINE float number_at(const char* bf16) {
  uint16_t half;
  std::memcpy(&half, bf16, sizeof half);
  return bits_of<float>(static_cast<uint32_t>(half) << 16);
}

// Adds weight x[d] to what sum(d) names where x[d] is infinite or NaN.
template <class Sum>
SPOOL_TILES_INLINE void add_unbounded(float weight, const uint16_t* x, int64_t D, const Sum& sum) {
  for (int64_t d = 0; d < D; ++d) {
    if ((x[d] & 0x7f80) != 0x7f80) continue;
    sum(d) += weight * number_at(reinterpret_cast<const char*>(x + d));
  }
}

SPOOL_TILES_INLINE Matrix rows_at(const AttentionRows& rows, int64_t row, int64_t column) {
  return {rows.at + row * rows.row + column, rows.row};
}

// Of 32 rows from one on, those within the text.
SPOOL_TILES_INLINE Extent rows_within(int64_t T, int64_t row) {
  return {at_most(block, T - row), block};
}

// Place of element (row, column) in blocks of 32 x 32, those of 32 rows of D side by side.
SPOOL_TILES_INLINE int64_t place_in_blocks(int64_t row, int64_t column, int64_t D) {
  return row / block * block * D + column / block * block * block + row % block * block +
         column % block;
}

}  // namespace spool::cpu::tiles
