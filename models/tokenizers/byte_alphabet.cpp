#include "spool/models/tokenizers/byte_alphabet.h"

namespace spool {
namespace {

// A character below 2048.
std::string utf8(unsigned character) {
  if (character < 128) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 63))};
}

}  // namespace

const ByteAlphabet& ByteAlphabet::instance() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  unsigned next = 256;
  std::string others;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (33 <= byte && byte <= 126) || (161 <= byte && byte != 173);
    spelling_[byte] = utf8(visible ? byte : next++);
    (visible ? order_ : others).push_back(static_cast<char>(byte));
    byte_of_[spelling_[byte]] = static_cast<char>(byte);
  }
  order_ += others;
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) text += spelling_[static_cast<unsigned char>(byte)];
  return text;
}

std::optional<std::string> ByteAlphabet::read(std::string_view spelling) const {
  std::string bytes;
  while (!spelling.empty()) {
    const size_t size = static_cast<signed char>(spelling[0]) < 0 ? 2 : 1;
    const auto found = byte_of_.find(std::string(spelling.substr(0, size)));
    if (found == byte_of_.end()) return {};
    bytes.push_back(found->second);
    spelling.remove_prefix(size);
  }
  return bytes;
}

}  // namespace spool
