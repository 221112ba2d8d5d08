#include "spool/models/cli/terminal/text.h"

#include <algorithm>

#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

constexpr const char* replacement = "\xef\xbf\xbd";  // U+FFFD

// The bytes of a character that begins with this one; 0 if none does.
size_t length_of_character(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Whether a whole character of UTF-8 is a control character.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character == "\n" || character == "\t") return false;
  const bool upper = first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
  return first < 0x20 || first == 0x7f || upper;
}

}  // namespace

std::string TerminalText::operator()(std::string_view bytes) {
  const std::string text = waiting_.append(bytes);
  waiting_.clear();
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t length = length_of_character(static_cast<unsigned char>(text[at]));
    size_t end = at + 1;
    while (end < std::min(at + length, text.size()) && is_continuation(text[end])) ++end;
    if (end == text.size() && end < at + length) {
      waiting_ = text.substr(at);
      break;
    }
    const std::string character = text.substr(at, end - at);
    const bool shows = character.size() == length && is_utf8(character) && !is_control(character);
    shown += shows ? character : replacement;
    at = end;
  }
  return shown;
}

std::string TerminalText::rest() {
  const bool is_empty = waiting_.empty();
  waiting_.clear();
  return is_empty ? "" : replacement;
}

std::string printable(std::string_view text) {
  TerminalText terminal;
  const std::string shown = terminal(text);
  return shown + terminal.rest();
}

std::string one_line(std::string_view text) {
  constexpr size_t max_bytes = 8000;  // more than the longest path
  const bool is_short = text.size() <= max_bytes;
  std::string line = is_short ? printable(text)
                              : sentence(printable(text.substr(0, max_bytes / 2)), "...",
                                         printable(text.substr(text.size() - max_bytes / 2)));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

std::string count_of(int64_t count, const char* what) {
  return sentence(count, ' ', what, count == 1 ? "" : "s");
}

}  // namespace spool
