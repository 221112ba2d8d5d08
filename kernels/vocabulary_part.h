#pragma once

// The part of a vocabulary that an argument has: rows of an embedding's weight, or columns of
// logits, of which other parts have the rest.  Tokens and targets count in the whole.

#include <cstdint>

namespace spool {

struct VocabularyPart {
  int64_t first = 0;  // the argument's first row or column, in the whole
  int64_t whole = 0;  // rows or columns of all parts together; 0: the argument is the whole

  // The size of the whole, of which the argument has `size`.
  int64_t whole_of(int64_t size) const { return whole > 0 ? whole : size; }
  // The argument's share of the whole.
  double share_of(int64_t size) const {
    return whole > 0 ? static_cast<double>(size) / static_cast<double>(whole) : 1;
  }
  // Throws unless a part of this many rows or columns lies in the whole.
  void check_fits(const char* kernel, const char* rows, int64_t size) const;
};

}  // namespace spool
