#pragma once

// Finds added tokens, such as <|im_end|>, in text before it is split into pieces: the longest one
// at the leftmost place where one begins.

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
  bool single_word = false;  // is not found within a word
  bool takes_left = false;   // includes the white space before it
  bool takes_right = false;  // includes the white space after it
};

class AddedTokens {
 public:
  static constexpr size_t max_bytes = 1000;  // of a token

  // The token must have 1 to max_bytes bytes.
  void add(AddedToken);

  struct Found {
    size_t begin = 0, size = 0;  // including the white space that it takes
    int32_t id = 0;
  };
  // Iterates over the tokens of a text.
  class Walk {
   public:
    Walk(const AddedTokens& tokens, std::string_view text) : tokens_(tokens), text_(text) {}
    std::optional<Found> next();

   private:
    const AddedTokens& tokens_;
    std::string_view text_;
    size_t at_ = 0;       // where the next search begins
    size_t reached_ = 0;  // the end of the last token, including its white space
  };

  bool empty() const { return tokens_.empty(); }

  // Whether a token ends at the end of the text.
  bool ends(std::string_view text) const;

  // Where the longest token begins that is incomplete at the end of the text; the text's size if
  // there is none.
  size_t incomplete(std::string_view text) const;

  // Whether a token may span the cut between these texts, or whether it is found on one side may
  // depend on the other.
  bool any_spans(std::string_view before, std::string_view after) const;

 private:
  struct Node {
    int32_t token = PairTable::none;  // ends here
  };
  struct Match {
    size_t begin = 0, end = 0;
    int32_t token = 0;
  };
  std::optional<Match> find(std::string_view text, size_t begin) const;

  PairTable next_;  // {node, byte} -> node; a tree of the tokens' bytes from its root, node 0
  std::vector<Node> nodes_ = {{}};
  bool begins_[256] = {};  // whether a token begins with this byte
  std::vector<AddedToken> tokens_;
};

}  // namespace spool
