#pragma once

// How GPT-2 cuts text into the pieces that byte-pair encoding never joins: contractions, words,
// numbers and other signs, each with a blank before it, and white space, whose last character goes
// to the word that follows (Radford et al. 2019, encoder.py):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// through PCRE2, with \s spelt out as Unicode's White_Space.  Bytes that are no UTF-8 make pieces
// of their own, which the original cannot have.

#include <memory>
#include <string_view>

namespace spool {

class Gpt2Pieces {
 public:
  Gpt2Pieces();
  ~Gpt2Pieces();
  Gpt2Pieces(const Gpt2Pieces&) = delete;
  Gpt2Pieces& operator=(const Gpt2Pieces&) = delete;

  // The pieces of one text, in order; each byte is in one.  For one thread.
  class Walk {
   public:
    Walk(const Gpt2Pieces&, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    // Empty at the end.
    std::string_view next();

   private:
    struct Match;
    void find();
    bool find_within(size_t window);

    std::string_view text_;
    size_t at_ = 0;                           // what comes next begins here
    size_t match_begin_ = 0, match_end_ = 0;  // the first match from there on
    std::unique_ptr<Match> match_;
  };

  // Where a longer text that begins like this one may be cut so that both sides have the pieces
  // they have in the whole: at most text.size(), and above 0 for text that is not empty.  Only a
  // piece that fills `text` is cut through, between two characters.
  size_t boundary(std::string_view text) const;

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace spool
