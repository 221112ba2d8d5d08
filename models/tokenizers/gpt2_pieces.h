#pragma once

// Splits text into GPT-2's pieces, across which byte-pair encoding never merges: contractions;
// words, numbers and runs of other signs, each with one space before it; and white space, whose
// last character goes to the next word (Radford et al. 2019, encoder.py):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Bytes that are not UTF-8 are pieces of their own; the original does not accept them.

#include <string_view>

#include "spool/models/tokenizers/regex_pieces.h"

namespace spool {

class Gpt2Pieces {
 public:
  static constexpr std::string_view expression =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

  Gpt2Pieces() : pieces_(expression) {}

  class Walk : public RegexPieces::Walk {
   public:
    Walk(const Gpt2Pieces& pieces, std::string_view text)
        : RegexPieces::Walk(pieces.pieces_, text) {}
  };

  // A place to cut any text that starts with `text`, so that both sides have the same pieces as the
  // whole: at most text.size(), and above 0 unless `text` is empty.  A piece is only cut if it
  // fills `text`, and then between two characters.
  size_t boundary(std::string_view text) const;

 private:
  RegexPieces pieces_;
};

}  // namespace spool
