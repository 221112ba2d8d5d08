#pragma once

// Products of bf16 on a tile unit: blocks of 32 x 32 elements of c.  Each element is one chain of
// steps of 32 terms, in order, in one f32 sum, so it has the same bits whatever panels, rows,
// columns and parts of the terms it is computed with.
//
// A block of products reads its left panel from the first-level cache and its right ones from the
// second; what is packed when, and for how many blocks, is decided by matmul_tile_unit.cpp.

#include "spool/kernels/cpu/tile_unit/kernels.h"
#include "spool/kernels/cpu/tile_unit/panels.h"

namespace spool::cpu::tiles {

SPOOL_TILES_INLINE int64_t at_most(int64_t x, int64_t max) { return x < max ? x : max; }
SPOOL_TILES_INLINE int64_t steps_of(int64_t terms) { return (terms + block - 1) / block; }
SPOOL_TILES_INLINE int64_t round_up_to_block(int64_t x) { return steps_of(x) * block; }
SPOOL_TILES_INLINE int64_t panel_size(int64_t terms) { return steps_of(terms) * step_bytes; }

// A left panel, packed or in place: bytes between rows, between steps, and to row 16.
struct LeftPanel {
  const char* at;
  int64_t row = 64, step = step_bytes, second = tile_bytes;
};

// 32 x 32 f32, rows `stride` elements apart.
struct Sums {
  float* at;
  int64_t stride = block;
};

// sums = or += left right, of so many steps.
template <class Unit>
SPOOL_TILES_INLINE void multiply_block(LeftPanel left, const char* right, int64_t steps,
                                       const Sums& sums, bool add) {
  const int64_t stride = sums.stride * static_cast<int64_t>(sizeof(float));
  float* const lower = sums.at + 16 * sums.stride;
  if (add) {
    Unit::template load<0>(sums.at, stride);
    Unit::template load<1>(sums.at + 16, stride);
    Unit::template load<2>(lower, stride);
    Unit::template load<3>(lower + 16, stride);
  } else {
    Unit::template zero<0>();
    Unit::template zero<1>();
    Unit::template zero<2>();
    Unit::template zero<3>();
  }
  for (int64_t i = 0; i < steps; ++i) {
    Unit::template load<6>(right, 64);
    Unit::template load<4>(left.at, left.row);
    Unit::template multiply<0, 4, 6>();
    Unit::template load<7>(right + tile_bytes, 64);
    Unit::template multiply<1, 4, 7>();
    Unit::template load<5>(left.at + left.second, left.row);
    Unit::template multiply<2, 5, 6>();
    Unit::template multiply<3, 5, 7>();
    left.at += left.step, right += step_bytes;
  }
  Unit::template store<0>(sums.at, stride);
  Unit::template store<1>(sums.at + 16, stride);
  Unit::template store<2>(lower, stride);
  Unit::template store<3>(lower + 16, stride);
}

// The bias of 32 columns, or 0.
struct Bias {
  Floats first = {}, second = {};
};
SPOOL_TILES_INLINE Bias bias_of(const Product& k, int64_t n) {
  if (!k.bias) return {};
  alignas(64) uint16_t row[block] = {};
  std::memcpy(row, k.bias + n, static_cast<size_t>(at_most(block, k.N - n)) * sizeof(uint16_t));
  return {widen(row), widen(row + 16)};
}

// Writes 32 sums, times alpha, with the bias and, if wanted, added to what is there, to 32 elements
// of c.
SPOOL_TILES_INLINE void finish_row(const Product& k, const Bias& bias, const float* sums,
                                   void* to) {
  Floats x = load<Floats>(sums), y = load<Floats>(sums + 16);
  if (k.alpha != 1) x *= all(k.alpha), y *= all(k.alpha);
  if (k.bias) x += bias.first, y += bias.second;
  if (k.c_is_f32) {
    auto* const c = static_cast<float*>(to);
    if (k.accumulate) x += load<Floats>(c), y += load<Floats>(c + 16);
    store(c, x);
    store(c + 16, y);
  } else {
    auto* const c = static_cast<uint16_t*>(to);
    if (k.accumulate) x += widen(c), y += widen(c + 16);
    store(c, narrow(x, y));
  }
}

// Writes the sums of some rows, up to 32, and of 32 columns from n on to c.
SPOOL_TILES_INLINE void finish_rows(const Product& k, const Interval& rows, int64_t n,
                                    const float* sums) {
  const int64_t columns = at_most(block, k.N - n), bytes = k.c_is_f32 ? 4 : 2;
  const Bias bias = bias_of(k, n);
  char* c = static_cast<char*>(k.c) + (rows.begin * k.c_row + n) * bytes;
  alignas(64) char copy[block * sizeof(float)] = {};
  for (int64_t i = 0; i < rows.size(); ++i, c += k.c_row * bytes, sums += block) {
    if (columns == block) [[likely]] {
      finish_row(k, bias, sums, c);
      continue;
    }
    const auto used = static_cast<size_t>(columns * bytes);
    if (k.accumulate) std::memcpy(copy, c, used);
    finish_row(k, bias, sums, copy);
    std::memcpy(c, copy, used);
  }
}

// pack(place, term) for the first of each 32 rows or columns and of each 32 terms, in the order of
// the memory in which the terms of a place lie side by side, or the places of a term.
template <class F>
SPOOL_TILES_INLINE void for_steps(const Interval& places, const Interval& terms,
                                  bool terms_lie_together, const F& pack) {
  if (terms_lie_together) {
    for (int64_t i = places.begin; i < places.end; i += block) {
      for (int64_t t = terms.begin; t < terms.end; t += block) pack(i, t);
    }
  } else {
    for (int64_t t = terms.begin; t < terms.end; t += block) {
      for (int64_t i = places.begin; i < places.end; i += block) pack(i, t);
    }
  }
}

// Right panels of some columns for some terms, `panel` bytes apart.
SPOOL_TILES_INLINE void pack_right(const Product& k, const Interval& columns, const Interval& terms,
                                   char* to, int64_t panel) {
  for_steps(columns, terms, k.b_transposed, [&](int64_t n, int64_t t) SPOOL_TILES_LAMBDA {
    char* const step =
        to + (n - columns.begin) / block * panel + (t - terms.begin) / block * step_bytes;
    const int64_t wide = at_most(block, k.N - n), count = at_most(block, terms.end - t);
    if (k.b_transposed) {
      right_step_of_columns({k.b + n * k.b_row + t, k.b_row}, {wide, count}, step);
    } else {
      right_step({k.b + t * k.b_row + n, k.b_row}, {count, wide}, step);
    }
  });
}

// Left panels of some rows for some terms, `panel` bytes apart.
SPOOL_TILES_INLINE void pack_left(const Product& k, const Interval& rows, const Interval& terms,
                                  char* to, int64_t panel) {
  for_steps(rows, terms, !k.a_transposed, [&](int64_t m, int64_t t) SPOOL_TILES_LAMBDA {
    char* const step =
        to + (m - rows.begin) / block * panel + (t - terms.begin) / block * step_bytes;
    const int64_t high = at_most(block, k.M - m), count = at_most(block, terms.end - t);
    if (k.a_transposed) {
      left_step_of_terms({k.a + t * k.a_row + m, k.a_row}, {count, high}, step);
    } else {
      left_step({k.a + m * k.a_row + t, k.a_row}, {high, count}, step);
    }
  });
}

// Terms whose left panel stays in the first-level cache.
constexpr int64_t block_terms = 256;
constexpr int64_t left_panel_bytes = block_terms * block * 2;

// Whether the rows of a matrix serve as left panel in place: whole steps, and not so far apart that
// a row evicts another from the cache.
SPOOL_TILES_INLINE bool serves_in_place(int64_t K, int64_t stride) {
  return K % block == 0 && stride % 1024 != 0;
}

// Some rows against packed right panels: where these and the sums are.
struct Panels {
  Interval rows, columns, terms;
  const char* right;
  int64_t right_panel;  // bytes from one of 32 columns to the next
  float* sums;          // 32 x 32 blocks, columns after columns, and rows after rows
  int64_t sums_rows;    // of as many rows there is room
};

// left(m, terms) is the left panel of rows [m, ...).
template <class Unit, class Left>
SPOOL_TILES_INLINE void multiply_panels(const Product& k, const Panels& p, const Left& left) {
  const int64_t wide = round_up_to_block(p.columns.size());
  for (int64_t m0 = p.rows.begin; m0 < p.rows.end; m0 += group_rows) {
    const int64_t m1 = at_most(m0 + group_rows, p.rows.end);
    float* const sums = p.sums + (m0 - p.rows.begin) % p.sums_rows * wide;
    int64_t t = p.terms.begin;
    do {  // at least once: without terms the sums are 0
      const Interval terms{t, at_most(t + block_terms, p.terms.end)};
      const char* const right = p.right + (t - p.terms.begin) / block * step_bytes;
      for (int64_t m = m0; m < m1; m += block) {
        const LeftPanel rows = left(m, terms);
        for (int64_t n = p.columns.begin; n < p.columns.end; n += block) {
          float* const at = sums + (m - m0) * wide + (n - p.columns.begin) * block;
          const int64_t panel = (n - p.columns.begin) / block;
          multiply_block<Unit>(rows, right + panel * p.right_panel, steps_of(terms.size()), {at},
                               t > 0);
          if (terms.end == k.K) finish_rows(k, {m, at_most(m + block, k.M)}, n, at);
        }
      }
      t = terms.end;
    } while (t < p.terms.end);
  }
}

template <class Unit>
void multiply_strip(const Product& k, const Strip& strip, char* lane) {
  alignas(64) char left[left_panel_bytes];
  const bool in_place = !k.a_transposed && serves_in_place(k.K, k.a_row);
  const auto panel = [&](int64_t m, const Interval& terms) SPOOL_TILES_LAMBDA {
    if (in_place && m + block <= k.M) {
      return LeftPanel{reinterpret_cast<const char*>(k.a + m * k.a_row + terms.begin), 2 * k.a_row,
                       2 * block, 32 * k.a_row};
    }
    pack_left(k, {m, at_most(m + block, k.M)}, terms, left, left_panel_bytes);
    return LeftPanel{left};
  };
  const int64_t right_panel = strip.part_terms * block * 2;
  const int64_t panels = steps_of(strip.columns.size());
  auto* const sums = reinterpret_cast<float*>(lane + panels * right_panel);
  Unit::configure();
  int64_t t = 0;
  do {
    const Interval terms{t, at_most(t + strip.part_terms, k.K)};
    pack_right(k, strip.columns, terms, lane, right_panel);
    const int64_t sums_rows =
        k.K > strip.part_terms ? round_up_to_block(strip.rows.size()) : group_rows;
    multiply_panels<Unit>(k, {strip.rows, strip.columns, terms, lane, right_panel, sums, sums_rows},
                          panel);
    t = terms.end;
  } while (t < k.K);
  Unit::release();
}

template <class Unit>
void pack_shared(const Product& k, const SharedPart& part, Interval terms, char* shared) {
  const int64_t step = (terms.begin - part.terms.begin) / block;
  pack_right(k, part.columns, terms, shared + step * step_bytes, panel_size(part.terms.size()));
}

template <class Unit>
void multiply_shared(const Product& k, const SharedPart& part, const char* shared, char* lane) {
  const int64_t bytes = panel_size(part.terms.size());
  const bool stay = part.terms.size() < k.K;  // sums, from one part of the terms to the next
  const int64_t rows = round_up_to_block(part.rows.size());
  const int64_t wide = round_up_to_block(part.columns.size());
  auto* sums = reinterpret_cast<float*>(lane);
  char* const lefts = reinterpret_cast<char*>(
      sums + (stay ? rows * wide : at_most(rows, group_rows) * at_most(wide, shared_columns)));
  pack_left(k, part.rows, part.terms, lefts, bytes);
  const auto panel = [&](int64_t m, const Interval& terms) SPOOL_TILES_LAMBDA {
    const int64_t step = (terms.begin - part.terms.begin) / block;
    return LeftPanel{lefts + (m - part.rows.begin) / block * bytes + step * step_bytes};
  };
  Unit::configure();
  for (int64_t n = part.columns.begin; n < part.columns.end; n += shared_columns) {
    const Interval columns{n, at_most(n + shared_columns, part.columns.end)};
    const char* const right = shared + (n - part.columns.begin) / block * bytes;
    multiply_panels<Unit>(
        k, {part.rows, columns, part.terms, right, bytes, sums, stay ? rows : group_rows}, panel);
    if (stay) sums += rows * round_up_to_block(columns.size());
  }
  Unit::release();
}

}  // namespace spool::cpu::tiles
