#pragma once

// Splits text into pieces, across which byte-pair encoding never merges, as a tokenizer.json says:
// by one regular expression, each of its pieces by the next one, and so on.

#include <functional>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/regex_pieces.h"

namespace spool {

class PreTokenizer {
 public:
  // Throws like RegexPieces.
  void add(std::string_view expression);

  bool empty() const { return stages_.empty(); }

  // Iterates over the pieces of texts.  For use in one thread; there must be an expression.
  class Walk {
   public:
    explicit Walk(const PreTokenizer&);
    void start(std::string_view text);
    // The next piece; empty at the end.
    std::string_view next();

   private:
    std::vector<RegexPieces::Walk> walks_;
    size_t stage_ = 0;
  };

  // Whether every expression is known to begin a piece at each U+0020 after a visible character.
  // The expressions of GPT-2, Llama 3, Qwen2 and SmolLM2 do; a line end does not begin one, since
  // it may belong to the signs before it.
  bool cuts_at_blanks() const { return cuts_at_blanks_; }

  // The last allowed place at which a piece begins, whatever follows the text; 0 if there is none.
  // An unknown expression is assumed to look ahead at most a kilobyte.
  size_t last_cut(std::string_view text, const std::function<bool(size_t)>& allowed) const;

 private:
  std::vector<RegexPieces> stages_;
  bool cuts_at_blanks_ = true;
};

}  // namespace spool
