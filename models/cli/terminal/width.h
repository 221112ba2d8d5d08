#pragma once

// Lines that fit a terminal.  Files and pipes get theirs as they are.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>

namespace spool {

// The columns of the terminal that the descriptor is; 80 if that is not known, 0 if it is none.
size_t terminal_width(int descriptor);

// Breaks lines at spaces so that each has at most `width` columns.  Continued lines begin four
// columns deeper than the first, or, in a table, whose columns three spaces or more divide, below
// the last column.  A word that is too long stays whole.  Width 0: nothing is broken.
std::string wrapped(std::string_view text, size_t width);

// The first `width` columns of a line; 0: all of it.
std::string cut(std::string_view line, size_t width);

// What to write to a terminal to begin its line anew: an escape code, or where none is wanted
// (style.h) blanks over all of the line.
std::string cleared_line(int descriptor);

// Writes to standard output, wrapped if it is a terminal.
void print_lines(const std::string& text);

// Help that fits the terminal: descriptions are wrapped beside the names of options and commands.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App*) const override;
  std::string make_usage(const CLI::App*, std::string name) const override;
  std::string make_option_desc(const CLI::Option*) const override;
  std::string make_subcommand(const CLI::App*) const override;
  std::string make_footer(const CLI::App*) const override;

 private:
  std::string beside_names(const std::string& text) const;
};

}  // namespace spool
