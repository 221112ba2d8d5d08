#include "spool/models/cli/terminal/width.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "spool/models/cli/terminal/style.h"

namespace spool {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

constexpr size_t narrow = 20;  // columns too few to wrap in

std::string wrapped_line(std::string_view line, size_t width) {
  if (columns_of(line) <= width) return std::string(line);
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.substr(indent).rfind("   ");  // before the last column
  const bool has_columns = gap != std::string_view::npos;
  const size_t begin = indent + (has_columns ? gap + 3 : 0);
  size_t used = columns_of(line.substr(0, begin));
  if (has_columns && used + narrow > width) return std::string(line);
  const size_t deeper = has_columns ? used : std::min(indent + 4, width / 2);
  std::string all(line.substr(0, begin));
  bool is_first = true;  // in its line
  for (size_t at = begin; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const size_t columns = columns_of(word);
    if (!is_first && used + 1 + columns > width) {
      all += "\n" + std::string(deeper, ' ');
      used = deeper;
      is_first = true;
    }
    if (!std::exchange(is_first, false)) {
      all += ' ';
      ++used;
    }
    all += word;
    used += columns;
    at = end + 1;
  }
  return all;
}

}  // namespace

size_t terminal_width(int descriptor) {
  if (!::isatty(descriptor)) return 0;
  constexpr size_t usual = 80;
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : usual;
}

std::string wrapped(std::string_view text, size_t width) {
  if (width == 0) return std::string(text);
  std::string all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0) all += '\n';
    all += wrapped_line(text.substr(at, end - at), width);
    at = end + 1;
  }
  return all;
}

std::string cut(std::string_view line, size_t width) {
  if (width == 0) return std::string(line);
  size_t columns = 0, at = 0;
  for (; at < line.size(); ++at) {
    if (begins_character(line[at]) && ++columns > width) break;
  }
  return std::string(line.substr(0, at));
}

std::string cleared_line(int descriptor) {
  if (is_coloured(descriptor)) return "\r\033[K";
  const size_t width = std::max<size_t>(terminal_width(descriptor), 1);
  return "\r" + std::string(width - 1, ' ') + "\r";
}

void print_lines(const std::string& text) {
  const std::string lines = wrapped(text, terminal_width(STDOUT_FILENO)) + "\n";
  std::fwrite(lines.data(), 1, lines.size(), stdout);
}

std::string HelpFormatter::beside_names(const std::string& text) const {
  const size_t width = terminal_width(STDOUT_FILENO), left = get_column_width();
  return width < left + narrow ? text : wrapped(text, width - left);
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return beside_names(CLI::Formatter::make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_display_name(true),
                           beside_names(command->get_description()), get_column_width());
  return out.str();
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return wrapped(CLI::Formatter::make_description(app), terminal_width(STDOUT_FILENO));
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return wrapped(CLI::Formatter::make_usage(app, std::move(name)), terminal_width(STDOUT_FILENO));
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  return wrapped(CLI::Formatter::make_footer(app), terminal_width(STDOUT_FILENO));
}

}  // namespace spool
