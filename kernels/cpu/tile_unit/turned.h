#pragma once

// Few rows of a against many rows of b in memory, as c^T = b a^T: the rows of b are left factors in
// place, so that only a is packed and the time is that of reading b.  An element of c has the
// terms, the order and so the bits of products.h.

#include "spool/kernels/cpu/tile_unit/products.h"

namespace spool::cpu::tiles {

constexpr int64_t few_rows = 16;  // have half a panel

SPOOL_TILES_INLINE int64_t turned_step_bytes(const Product& k) {
  return k.M <= few_rows ? tile_bytes : step_bytes;
}

template <class Unit>
void pack_turned(const Product& k, Interval terms, char* packed) {
  const int64_t bytes = turned_step_bytes(k), panel = steps_of(k.K) * bytes;
  for (int64_t m = 0; m < k.M; m += block, packed += panel) {
    for (int64_t t = terms.begin; t < terms.end; t += block) {
      const Extent extent{at_most(block, k.M - m), at_most(block, terms.end - t)};
      char* const to = packed + t / block * bytes;
      with_whole_step({k.a + m * k.a_row + t, k.a_row}, extent,
                      [&](const Matrix& a) SPOOL_TILES_LAMBDA {
                        transpose(a.at, a.stride, to);
                        if (bytes == step_bytes)
                          transpose(a.at + 16 * a.stride, a.stride, to + tile_bytes);
                      });
    }
  }
}

// sums (64, 16) = left right, where left is two panels of 32 rows and right has half a panel.
template <class Unit>
SPOOL_TILES_INLINE void multiply_half_panel(LeftPanel first, LeftPanel second, const char* right,
                                            int64_t steps, float* sums, bool add) {
  float* const lower = sums + 2 * 256;
  if (add) {
    Unit::template load<0>(sums, 64);
    Unit::template load<1>(sums + 256, 64);
    Unit::template load<2>(lower, 64);
    Unit::template load<3>(lower + 256, 64);
  } else {
    Unit::template zero<0>();
    Unit::template zero<1>();
    Unit::template zero<2>();
    Unit::template zero<3>();
  }
  for (int64_t i = 0; i < steps; ++i, right += tile_bytes) {
    Unit::template load<7>(right, 64);
    Unit::template load<4>(first.at, first.row);
    Unit::template multiply<0, 4, 7>();
    Unit::template load<5>(first.at + first.second, first.row);
    Unit::template multiply<1, 5, 7>();
    Unit::template load<6>(second.at, second.row);
    Unit::template multiply<2, 6, 7>();
    Unit::template load<4>(second.at + second.second, second.row);
    Unit::template multiply<3, 4, 7>();
    first.at += first.step, second.at += second.step;
  }
  Unit::template store<0>(sums, 64);
  Unit::template store<1>(sums + 256, 64);
  Unit::template store<2>(lower, 64);
  Unit::template store<3>(lower + 256, 64);
}

// The left panel of rows [n, n + 32) of b for some terms: in place, or a copy.
SPOOL_TILES_INLINE LeftPanel turned_panel(const Product& k, int64_t n, const Interval& terms,
                                          char* copy) {
  if (serves_in_place(k.K, k.b_row) && n + block <= k.N) {
    return {reinterpret_cast<const char*>(k.b + n * k.b_row + terms.begin), 2 * k.b_row, 2 * block,
            32 * k.b_row};
  }
  char* to = copy;
  for (int64_t t = terms.begin; t < terms.end; t += block, to += step_bytes) {
    const int64_t rows = n < k.N ? at_most(block, k.N - n) : 0;
    const uint16_t* const from = rows > 0 ? k.b + n * k.b_row + t : k.b;
    left_step({from, k.b_row}, {rows, at_most(block, terms.end - t)}, to);
  }
  return {copy};
}

// Writes sums of 32 columns of c from n on, in two tiles of 16 rows of 16 each, to rows from m on.
SPOOL_TILES_INLINE void finish_turned(const Product& k, int64_t m, int64_t n, const float* upper,
                                      const float* lower, int64_t stride) {
  alignas(64) float turned[2][16][16], sums[block * block];
  const auto turn = [&](const float* from, float(*to)[16]) SPOOL_TILES_LAMBDA {
    transpose(reinterpret_cast<const char*>(from), stride * int64_t{sizeof(float)},
              reinterpret_cast<char*>(to));
  };
  turn(upper, turned[0]);
  turn(lower, turned[1]);
  for (int64_t i = 0; i < 16; ++i) {
    store(sums + block * i, load<Floats>(turned[0][i]));
    store(sums + block * i + 16, load<Floats>(turned[1][i]));
  }
  finish_rows(k, {m, at_most(m + 16, k.M)}, n, sums);
}

template <class Unit>
void multiply_few_turned(const Product& k, Interval columns, const char* packed) {
  alignas(64) char copies[2][left_panel_bytes];
  alignas(64) float sums[4 * 256];
  for (int64_t n = columns.begin; n < columns.end; n += 2 * block) {
    int64_t t = 0;
    do {
      const Interval terms{t, at_most(t + block_terms, k.K)};
      multiply_half_panel<Unit>(
          turned_panel(k, n, terms, copies[0]), turned_panel(k, n + block, terms, copies[1]),
          packed + t / block * tile_bytes, steps_of(terms.size()), sums, t > 0);
      t = terms.end;
    } while (t < k.K);
    finish_turned(k, 0, n, sums, sums + 256, 16);
    if (n + block < k.N) finish_turned(k, 0, n + block, sums + 2 * 256, sums + 3 * 256, 16);
  }
}

template <class Unit>
void multiply_more_turned(const Product& k, Interval columns, const char* packed) {
  alignas(64) char copy[left_panel_bytes];
  alignas(64) float sums[most_turned_rows / block][block * block];
  const int64_t panel = panel_size(k.K);
  for (int64_t n = columns.begin; n < columns.end; n += block) {
    int64_t t = 0;
    do {
      const Interval terms{t, at_most(t + block_terms, k.K)};
      const LeftPanel left = turned_panel(k, n, terms, copy);
      for (int64_t i = 0; i < steps_of(k.M); ++i) {
        multiply_block<Unit>(left, packed + i * panel + t / block * step_bytes,
                             steps_of(terms.size()), {sums[i]}, t > 0);
      }
      t = terms.end;
    } while (t < k.K);
    for (int64_t m = 0; m < k.M; m += 16) {
      const float* const upper = sums[m / block] + m % block;
      finish_turned(k, m, n, upper, upper + 16 * block, block);
    }
  }
}

template <class Unit>
void multiply_turned(const Product& k, Interval columns, const char* packed) {
  Unit::configure();
  if (k.M <= few_rows) {
    multiply_few_turned<Unit>(k, columns, packed);
  } else {
    multiply_more_turned<Unit>(k, columns, packed);
  }
  Unit::release();
}

}  // namespace spool::cpu::tiles
