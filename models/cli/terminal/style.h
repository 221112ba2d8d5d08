#pragma once

// Bold and coloured words on terminals.  There are none in files and pipes, on a terminal without
// them (TERM=dumb), and for people who want none: NO_COLOR, https://no-color.org.

#include <cstdint>
#include <string>
#include <string_view>

namespace spool {

enum class Style : uint8_t { bold, error, warning };

bool is_coloured(int descriptor);

// The text in a style, for that descriptor.
std::string styled(std::string_view text, Style, int descriptor);

}  // namespace spool
