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

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool single_word = false;  // not within a word
  bool takes_left = false;   // white space before it is a part of it
  bool takes_right = false;  // white space after it is
};

class AddedTokens {
 public:
  static constexpr size_t max_bytes = 1000;  // of a token

  // A token of at least one byte, and of at most max_bytes.
  void add(AddedToken);

  struct Found {
    size_t begin = 0, size = 0;  // with the white space that it takes
    int32_t id = 0;
  };
  // Iterates over the tokens in a text.
  class Walk {
   public:
    Walk(const AddedTokens& tokens, std::string_view text) : tokens_(tokens), text_(text) {}
    std::optional<Found> next();

   private:
    const AddedTokens& tokens_;
    std::string_view text_;
    size_t at_ = 0;       // of the next search
    size_t reached_ = 0;  // the end of the last token, with its white space
  };

  bool empty() const { return tokens_.empty(); }

  // Whether a token ends where the text does.
  bool ends(std::string_view text) const;

  // Where the longest one begins of which the end of the text is a part; the text's size if none
  // does.
  size_t incomplete(std::string_view text) const;

  // Whether one may be partly in the text before a cut and partly in what follows, or is found
  // there or not by what is on the other side.
  bool any_spans(std::string_view before, std::string_view after) const;

 private:
  struct Node {
    int32_t token = PairTable::none;  // that ends here
  };
  struct Match {
    size_t begin = 0, end = 0;
    int32_t token = 0;
  };
  std::optional<Match> find(std::string_view text, size_t begin) const;

  PairTable next_;  // {node, byte} -> node; a tree of the tokens' bytes from its root, node 0
  std::vector<Node> nodes_ = {{}};
  bool begins_[256] = {};  // whether a token begins with a byte
  std::vector<AddedToken> tokens_;
};

}  // namespace spool
