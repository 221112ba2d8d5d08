#pragma once

// Splits text into the matches of a regular expression and the text between them.  A tokenizer.json
// has expressions for Oniguruma; PCRE2 matches them here.
//
//   \s, \S, \d, \D    are spelt out as Unicode's White_Space and \p{Nd}, in classes too
//   other classes     only \p{...}, \P{...} and those in brackets, not one within another
//   groups            (?:...), (?i:...), (...), lookahead, lookbehind, (?>...)
//
// Bytes that are not UTF-8 are pieces of their own, and the text ends before them.

#include <memory>
#include <string_view>

namespace spool {

class RegexPieces {
 public:
  // Throws an Error with the reason if the expression is malformed, uses something that is not
  // listed above, or cannot match anything.
  explicit RegexPieces(std::string_view expression);
  ~RegexPieces();
  RegexPieces(RegexPieces&&) noexcept;
  RegexPieces& operator=(RegexPieces&&) noexcept;

  // Iterates over the pieces of a text, in order; each byte is in one.  For use in one thread.
  class Walk {
   public:
    explicit Walk(const RegexPieces&, std::string_view text = {});
    ~Walk();
    Walk(Walk&&) noexcept;

    // Restarts with another text.
    void start(std::string_view text);
    // The next piece; empty at the end.  Throws if a match takes too long.
    std::string_view next();

   private:
    struct Matcher;
    void find();

    std::string_view text_;
    size_t at_ = 0;                           // begin of the next piece
    size_t match_begin_ = 0, match_end_ = 0;  // the first match at or after at_
    size_t valid_begin_ = 0, valid_end_ = 0;  // the valid UTF-8 around at_
    std::unique_ptr<Matcher> matcher_;
  };

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace spool
