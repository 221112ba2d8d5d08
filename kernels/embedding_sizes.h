#pragma once

// How the backward pass of embeddings sorts its tokens on cuda, and where in the workspace what is.
//
// The places of the tokens are sorted by token, equal ones in order, by two passes over the digits
// of the token, lower first; a pass counts the digits of each of a few pieces of the list, and then
// moves each piece to where the counts say.  With equal tokens side by side, the sorted list is cut
// into runs of fixed length: the rows of a run of one token alone are added up by themselves, so
// that a token that is everywhere is the work of many.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

struct TokenSort {
  static constexpr int64_t max_pieces = 64, piece_step = 256, run = 32;
  static constexpr int max_digit_bits = 11;  // of shared memory for a count each

  int64_t N, V, C;     // of tokens, of the vocabulary, of columns
  int digit_bits = 1;  // of each of two digits, which write 0 .. V: V is no token
  int64_t bins = 2;    // values of a digit
  int64_t piece = 1, pieces = 0;
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

  // Numbers of four bytes, one after the other: sums of runs (runs, C), of f32, first, for they are
  // read and written as packs; then, of i32:
  int64_t first_order() const { return runs * C; }            // (N), after the first pass
  int64_t second_order() const { return first_order() + N; }  // (N), after both
  int64_t begins() const { return second_order() + N; }       // (V)
  int64_t ends() const { return begins() + V; }               // (V), 0 for no token
  int64_t second_counts() const { return ends() + V; }        // (pieces, bins)
  int64_t first_counts() const { return second_counts() + pieces * bins; }  // likewise
  size_t bytes() const {
    return static_cast<size_t>(first_counts() + pieces * bins) * sizeof(float);
  }
  // From ends() on; zero at the start.
  int64_t zeros() const { return V + pieces * bins; }
};

}  // namespace spool::cuda
