#include "spool/models/tokenizers/gpt2_pieces.h"

#include "spool/models/tokenizers/utf8.h"

namespace spool {
namespace {

bool is_ascii_blank(char c) { return c == ' ' || ('\t' <= c && c <= '\r'); }

// The text without an incomplete last character, unless nothing else is left.
std::string_view whole_characters(std::string_view text) {
  const std::string_view whole = without_incomplete_character(text);
  return whole.empty() ? text : whole;
}

}  // namespace

// White space after a visible character always begins a piece, and the piece before it does not
// depend on what follows.
size_t Gpt2Pieces::boundary(std::string_view text) const {
  constexpr size_t near = 4096;
  text = whole_characters(text);
  for (size_t i = text.size(); i-- > 1 && text.size() - i < near;) {
    if (is_ascii_blank(text[i]) && ends_visibly(text.substr(0, i))) return i;
  }
  // Otherwise cut before the last piece, which more text may lengthen, or before the last two,
  // which may become one contraction.
  std::string_view piece, last, before;
  for (Walk walk(*this, text); !(piece = walk.next()).empty(); last = piece) before = last;
  size_t cut = text.size() - last.size();
  if (before == "'" && last.size() <= 2) cut -= before.size();
  return cut > 0 ? cut : text.size();
}

}  // namespace spool
