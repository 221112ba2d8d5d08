// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// GPT-2's split of text into pieces, across which byte-pair encoding never merges: contractions;
// words, numbers and runs of other signs, each with one space before it; and white space, whose
// last character goes to the word that follows (Radford et al. 2019, encoder.py):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// PCRE2 does the matching, with \s spelt out as Unicode's White_Space.  Bytes that are not UTF-8
// are pieces of their own; the original does not accept them.

#include <memory>
#include <string_view>

namespace spool {

class Gpt2Pieces {
 public:
  Gpt2Pieces();
  ~Gpt2Pieces();
  Gpt2Pieces(const Gpt2Pieces&) = delete;
  Gpt2Pieces& operator=(const Gpt2Pieces&) = delete;

  // Iterates over the pieces of one text, in order; each byte is in one.  For one thread.
  class Walk {
   public:
    Walk(const Gpt2Pieces&, std::string_view text);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    // The next piece; empty at the end.
    std::string_view next();

   private:
    struct Match;
    void find();
    bool find_within(size_t window);

    std::string_view text_;
    size_t at_ = 0;                           // begin of the next piece
    size_t match_begin_ = 0, match_end_ = 0;  // the first match at or after at_
    std::unique_ptr<Match> match_;
  };

  // A place to cut any text that starts with `text`, such that both sides have the pieces they have
  // in the whole: at most text.size(), and above 0 unless `text` is empty.  Only a piece that fills
  // `text` is cut through, between two characters.
  size_t boundary(std::string_view text) const;

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace spool
