#include "spool/models/tokenizers/utf8.h"

#include <algorithm>

namespace spool {
namespace {

// The size of a character with this first byte; 0 if there is none.
size_t size_by_first_byte(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

size_t first_character_size(std::string_view text) {
  if (text.empty()) return 0;
  const size_t size = size_by_first_byte(static_cast<unsigned char>(text[0]));
  if (size <= 1) return size;
  if (size > text.size()) return 0;
  if (!std::ranges::all_of(text.substr(1, size - 1), continues_character)) return 0;
  const char32_t number = code_point(text.substr(0, size));
  const bool is_surrogate = 0xd800 <= number && number < 0xe000;
  const char32_t min = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
  return number >= min && number <= 0x10ffff && !is_surrogate ? size : 0;
}

size_t valid_utf8_size(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<signed char>(text[at]) >= 0) {
      ++at;
      continue;
    }
    const size_t size = first_character_size(text.substr(at));
    if (size == 0) break;
    at += size;
  }
  return at;
}

char32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[i]));
  };
  constexpr char32_t first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  char32_t number = byte(0) & first_bits[character.size()];
  for (size_t i = 1; i < character.size(); ++i) number = number << 6 | (byte(i) & 0x3f);
  return number;
}

std::string_view without_incomplete_character(std::string_view text) {
  for (size_t size = 1; size < 4 && size <= text.size(); ++size) {
    const size_t at = text.size() - size;
    if (continues_character(text[at])) continue;
    const bool incomplete = size_by_first_byte(static_cast<unsigned char>(text[at])) > size;
    return incomplete ? text.substr(0, at) : text;
  }
  return text;
}

std::string_view from_character_to_character(std::string_view text) {
  constexpr size_t max = 3;  // bytes after the first
  size_t begin = 0;
  while (begin < std::min(max, text.size()) && continues_character(text[begin])) ++begin;
  return without_incomplete_character(text.substr(begin));
}

bool ends_visibly(std::string_view text) {
  constexpr std::string_view spaces[] = {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x81\x9f",
                                         "\xe3\x80\x80"};
  if (text.empty()) return false;
  const char last = text.back();
  if (static_cast<signed char>(last) >= 0) return '!' <= last && last <= '~';
  const bool general = text.size() >= 3 && text.substr(text.size() - 3, 2) == "\xe2\x80";
  return !general &&
         std::ranges::none_of(spaces, [&](std::string_view s) { return text.ends_with(s); });
}

}  // namespace spool
