#include <cstdlib>
#include <string>

#include "fuzz.h"
#include "spool/models/tokenizers/gpt2_pieces.h"

// The pieces of a text make up the text, and a text cut at its boundary has the same pieces.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  static const Gpt2Pieces pieces;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.empty()) return 0;
  const size_t window = size / 2 + 1,
               cut = pieces.boundary(std::string_view(text).substr(0, window));
  if (cut == 0 || cut > window) std::abort();
  std::string all;
  bool through = true;  // whether the cut goes through a piece
  Gpt2Pieces::Walk walk(pieces, text);
  for (std::string_view piece; !(piece = walk.next()).empty();) {
    through = through && all.size() != cut;
    all += piece;
  }
  through = through && all.size() != cut;
  if (all != text) std::abort();
  // The cut goes only through a piece that fills the window, up to a blank at its end and a part of
  // a character.
  constexpr size_t rest = 6;
  Gpt2Pieces::Walk again(pieces, text);
  if (through && again.next().size() + rest < window) std::abort();
  return 0;
}
