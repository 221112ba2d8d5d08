#pragma once

// What the command line of every command has in common: whole numbers are decimal, a flag that is
// given twice is told, and a command that does not exist is named with the one that was meant.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace spool {

// The words of a command line after the program's name.  CLI11 would read a path such as [a,b] as a
// list: the commands that take several paths get ./[a,b] instead, which is the same file.
std::vector<std::string> command_words(int argc, const char* const* argv);

// Gives every option of the command that takes whole numbers a check of how they are written.
void check_whole_numbers(CLI::App& command);

// A CLI11 validator: a whole number of at least so many.
CLI::Validator at_least(int64_t least);

// "--lr is given 2 times; the last one counts: 0.01", for each flag of the command that takes one
// value and was given different ones.
std::vector<std::string> repeated_flags(const CLI::App& command);

// "there is no command trian; did you mean train?" if the first word of the command line should be
// a command and is none; empty otherwise.
std::string wrong_command(const CLI::App& app, const std::string& first_word);

}  // namespace spool
