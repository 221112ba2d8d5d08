#pragma once

// Finds UTF-8 characters in text that may contain any bytes.

#include <cstddef>
#include <string_view>

namespace spool {

// The size of the character that begins the text; 0 if it is empty or does not begin with UTF-8.
size_t first_character_size(std::string_view text);

// The size of the text before the first byte that is not UTF-8.
size_t valid_utf8_size(std::string_view text);

// The code point of the character with these bytes.
char32_t code_point(std::string_view character);

// The text without an incomplete last character.
std::string_view without_incomplete_character(std::string_view text);
// The text without an incomplete first or last character.
std::string_view from_character_to_character(std::string_view text);

// Whether the text certainly ends with a visible character: one of ASCII's, or any other that is
// not in Unicode's White_Space.
bool ends_visibly(std::string_view text);

}  // namespace spool
