#include "spool/models/cli/terminal/style.h"

#include <unistd.h>

#include <cstdlib>

namespace spool {
namespace {

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value && *value;
}

std::string_view escape_of(Style style) {
  switch (style) {
    case Style::bold:
      return "\033[1m";
    case Style::error:
      return "\033[1;31m";
    case Style::warning:
      return "\033[1;33m";
  }
  return {};
}

}  // namespace

bool is_coloured(int descriptor) {
  const char* const terminal = std::getenv("TERM");
  const bool is_dumb = !terminal || std::string_view(terminal) == "dumb";
  return ::isatty(descriptor) && !is_set("NO_COLOR") && !is_dumb;
}

std::string styled(std::string_view text, Style style, int descriptor) {
  if (!is_coloured(descriptor)) return std::string(text);
  return std::string(escape_of(style)).append(text).append("\033[0m");
}

}  // namespace spool
