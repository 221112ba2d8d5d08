#pragma once

// Characters of UTF-8 in text that may have any bytes.

#include <cstddef>
#include <string_view>

namespace spool {

// The bytes of the character that a text begins with; 0 if it begins with none, as the text is
// empty, or its bytes are not UTF-8.
size_t first_character_size(std::string_view text);

// The bytes before the first that is not UTF-8.
size_t valid_utf8_size(std::string_view text);

// The number of a character, of which these are the bytes.
char32_t code_point(std::string_view character);

// The text without an incomplete last character.
std::string_view without_incomplete_character(std::string_view text);
// The text without an incomplete first or last character.
std::string_view from_character_to_character(std::string_view text);

// Whether the text's last character is certainly not white space: one of ASCII's signs, or any
// other that is not in Unicode's White_Space.
bool ends_visibly(std::string_view text);

}  // namespace spool
