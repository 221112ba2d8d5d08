#pragma once

// The index notation of an op, taken apart; Op::indices() says what it means.
//
//   nk,ok,+o->no       + : a term that is added once to a sum over k, a bias
//   n(i+i)->ni         a dimension of two parts, each as long as the index i: gates and numbers
//   bT(128h+64h+64h)->bT(128h)
//                      parts of several units of h: 128 numbers of queries for each key head, and
//                      64 of keys and of values
//   nC,v*C,n->         * : the parts of the op along v exchange what they lack, so that an output
//                      without v is whole, and not a summand; an output that exists for backward
//                      alone is a part's own

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

// Some of a tensor's dimensions, one after another.
struct Dimensions {
  int first = 0, count = 0;
};

// An input or an output: an index for each of its dimensions.
struct Term {
  std::string indices = {};
  bool is_added = false;                                        // marked with +
  std::vector<std::pair<char, std::vector<int64_t>>> packed{};  // see parts()

  bool carries(char index) const { return indices.find(index) != std::string::npos; }
  char first() const { return indices.empty() ? '\0' : indices.front(); }
  // The lengths of the parts of the index's dimension, in units of the index; {1}: the dimension is
  // the index itself.
  std::span<const int64_t> parts(char index) const;
  bool is_plain(char index) const;  // its dimension is the index itself
  int64_t units(char index) const;  // of all parts together

  // Those that the index stands for in a tensor of this rank: the first index for all that the
  // others leave.  None if the term lacks the index.  Throws if the term has more indices.
  Dimensions dimensions(char index, int rank) const;
  // The extent of an index that the term carries.  Throws if its dimension does not divide into its
  // units.
  int64_t extent(char index, const Shape&) const;
  // "bT(2h+h)", as it was written.
  std::string text() const;
};

struct Notation {
  std::vector<Term> inputs = {}, outputs = {};
  std::string joined = {};  // the indices marked with *

  // The terms of inputs or of outputs that the notation does not mention have no index.
  const Term& input(size_t) const;
  const Term& output(size_t) const;
  bool is_joined(char index) const { return joined.find(index) != std::string::npos; }
  // The separable indices, in the order in which inputs have them.
  std::string separable() const;
};

// "nk,ok->no" has the inputs "nk" and "ok" and the output "no".  Throws if the text is not index
// notation: an index is a letter and stands once in a term; the parts of a dimension have one
// index; + is before an input, * behind a separable index of an input that no output has; a
// separable index of an output is one of an input, too.
Notation parse_notation(std::string_view);

// Whether the op can be cut into parts along this index.
constexpr bool is_separable(char index) { return index >= 'a' && index <= 'z'; }

}  // namespace spool
