#pragma once

// Blanks as a visible character, as sentencepiece has them: every U+0020 becomes it, and it is put
// before a text or before each stretch of one that does not begin with it.

#include <string>
#include <string_view>

namespace spool {

// Where a stretch of text between added tokens is.
enum class TextPlace { begin, after_token, middle };

struct Metaspace {
  enum class Prepend { never, first, always };

  std::string blank = "\xe2\x96\x81";  // U+2581
  Prepend prepend = Prepend::always;
  bool splits = true;  // each blank begins a piece

  // What the text becomes, in `buffer`.
  std::string_view apply(std::string_view text, TextPlace place, std::string& buffer) const;
};

}  // namespace spool
