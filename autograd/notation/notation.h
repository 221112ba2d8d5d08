#pragma once

// The index notation of an op, taken apart; Op::indices() says what it means.

#include <string>
#include <string_view>
#include <vector>

namespace spool {

struct Notation {
  std::vector<std::string> inputs, outputs;  // the terms: the indices of each
};

// "nk,ok->no" has the inputs "nk" and "ok" and the output "no".  Throws if the text is not index
// notation: an index is a letter and stands once in a term, and a separable one of an output is one
// of an input too.
Notation parse_notation(std::string_view);

// Whether the op can be cut into parts along this index.
constexpr bool is_separable(char index) { return index >= 'a' && index <= 'z'; }

}  // namespace spool
