#pragma once

// The characters by which merges.txt and vocab.json spell bytes, in UTF-8: a byte that is visible
// in Latin-1 by itself, the others, in order, by the characters from 256 on.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace spool {

class ByteAlphabet {
 public:
  static const ByteAlphabet& instance();

  // The bytes that are tokens 0 to 255, in order.
  const std::string& order() const { return order_; }
  std::string spell(std::string_view bytes) const;
  // The bytes that are spelt so; nothing if a character is not in the alphabet.
  std::optional<std::string> read(std::string_view spelling) const;

 private:
  ByteAlphabet();

  std::string spelling_[256], order_;
  std::unordered_map<std::string, char> byte_of_;
};

}  // namespace spool
