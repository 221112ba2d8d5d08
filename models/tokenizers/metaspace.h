#pragma once

// Replaces spaces by a visible character, as sentencepiece does: every U+0020 becomes it, and it is
// prepended to a text, or to each part of one, that does not begin with it.

#include <string>
#include <string_view>

namespace spool {

// Where a part of a text, between added tokens, is.
enum class TextPlace { begin, after_token, middle };

struct Metaspace {
  enum class Prepend { never, first, always };

  std::string blank = "\xe2\x96\x81";  // U+2581
  Prepend prepend = Prepend::always;
  bool splits = true;  // each space begins a piece

  // The changed text, in `buffer`.
  std::string_view apply(std::string_view text, TextPlace place, std::string& buffer) const;
};

}  // namespace spool
