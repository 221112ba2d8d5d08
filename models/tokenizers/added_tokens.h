// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Tokens that are found in text before it is split, such as <|im_end|>: at the leftmost place where
// one begins, the longest.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/merge_table.h"

namespace spool {

class AddedTokens {
 public:
  static constexpr size_t max_bytes = 1000;  // of a token

  // A token of at least one byte, and of at most max_bytes.
  void add(std::string_view text, int32_t id);

  struct Found {
    size_t begin = 0, size = 0;
    int32_t id = 0;
  };
  // The first one at or after a place.
  std::optional<Found> find(std::string_view text, size_t begin) const;

  // Whether a token ends where the text does.
  bool ends(std::string_view text) const;

  // Where the longest one begins of which the end of the text is a part; the text's size if none
  // does.
  size_t incomplete(std::string_view text) const;

  // Whether one may be partly in the text before a cut and partly in what follows.
  bool any_spans(std::string_view before, std::string_view after) const;

 private:
  struct Node {
    int32_t id = PairTable::none;  // of the token that ends here
  };

  PairTable next_;  // {node, byte} -> node; a tree of the tokens' bytes from its root, node 0
  std::vector<Node> nodes_ = {{}};
  bool begins_[256] = {};  // whether a token begins with a byte
  std::vector<std::string> texts_;
};

}  // namespace spool
