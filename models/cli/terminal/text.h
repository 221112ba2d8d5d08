#pragma once

// Text for a terminal: what a model writes may be any bytes, of which some would ring bells, move
// the cursor or change colours.

#include <cstdint>
#include <string>
#include <string_view>

namespace spool {

// Turns bytes into printable UTF-8: bytes that are no UTF-8 and control characters, but for newline
// and tab, become U+FFFD.  A character that comes in pieces is shown when it is whole.
class TerminalText {
 public:
  // What can be shown now.
  std::string operator()(std::string_view bytes);
  // What is left of a character that has not become whole.
  std::string rest();

 private:
  std::string waiting_;  // the first bytes of a character
};

// The same for a whole text.
std::string printable(std::string_view text);
// The same for a message: without newlines and tabs, and shortened if it is very long.
std::string one_line(std::string_view text);
// "1 row", "2 rows".
std::string count_of(int64_t count, const char* what);

}  // namespace spool
