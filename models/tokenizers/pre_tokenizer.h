#pragma once

// How a tokenizer.json splits text into pieces, across which byte-pair encoding never merges: by
// one regular expression, each piece of that by the next, and so on.

#include <functional>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/regex_pieces.h"

namespace spool {

class PreTokenizer {
 public:
  // Throws as RegexPieces does.
  void add(std::string_view expression);

  bool empty() const { return stages_.empty(); }

  // Iterates over the pieces of texts.  For one thread; there must be an expression.
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

  // Whether every expression is known to begin a piece at each U+0020 after a character that is not
  // white space.  The expressions of GPT-2, Llama 3, Qwen2 and SmolLM2 do; a line end does not
  // begin one, since it may belong to the signs before it.
  bool cuts_at_blanks() const { return cuts_at_blanks_; }

  // The last place that is allowed and at which a piece begins, whatever comes after the text; 0 if
  // there is none.  An expression that is not known is taken to look ahead a kilobyte at most.
  size_t last_cut(std::string_view text, const std::function<bool(size_t)>& allowed) const;

 private:
  std::vector<RegexPieces> stages_;
  bool cuts_at_blanks_ = true;
};

}  // namespace spool
