#pragma once

// The sort of embedding backward's tokens on cuda, and the layout of its workspace.
//
// The positions of the tokens are sorted by token, stably, in two passes over the digits of the
// token, the lower digit first.  A pass counts the digits in each of a few pieces of the list, then
// moves the entries of each piece to the places that follow from the counts.  The sorted list is
// cut into runs of fixed length: the rows of a run of a single token are summed separately, so that
// the work of a frequent token is shared.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

struct TokenSort {
  static constexpr int64_t max_pieces = 64, piece_step = 256, run = 32;
  static constexpr int max_digit_bits = 11;  // shared memory has a count for each value

  int64_t N, V, C;                // numbers of tokens, of rows of the vocabulary, of columns
  int digit_bits = 1;             // bits of each of two digits of 0 .. V; V stands for no token
  int64_t bins = 2;               // values of a digit
  int64_t piece = 1, pieces = 0;  // tokens of a piece, number of pieces
  int64_t runs = 0;

  TokenSort(int64_t tokens, int64_t vocabulary, int64_t columns)
      : N(tokens), V(vocabulary), C(columns) {
    const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(V)));
    digit_bits = std::max(1, spool::ceil_div(bits, 2));
    bins = int64_t{1} << digit_bits;
    const int64_t even = spool::ceil_div(N, max_pieces);
    piece = std::max(spool::round_up(even, piece_step), piece_step);
    pieces = spool::ceil_div(N, piece);
    runs = spool::ceil_div(N, run);
  }

  // Offsets in words of four bytes.  The sums of runs, f32 (runs, C), come first, as they are
  // read and written in 16-byte packs; then, in i32:
  int64_t first_order() const { return runs * C; }            // (N), after the first pass
  int64_t second_order() const { return first_order() + N; }  // (N), after both
  int64_t begins() const { return second_order() + N; }       // (V)
  int64_t ends() const { return begins() + V; }               // (V), 0 for an absent token
  int64_t second_counts() const { return ends() + V; }        // (pieces, bins)
  int64_t first_counts() const { return second_counts() + pieces * bins; }  // (pieces, bins)
  size_t bytes() const {
    return static_cast<size_t>(first_counts() + pieces * bins) * sizeof(float);
  }
  // Number of elements from ends() on that start as zero.
  int64_t zeros() const { return V + pieces * bins; }
};

}  // namespace spool::cuda
