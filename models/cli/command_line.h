#pragma once

// What the command line of every command has in common: no value is empty, numbers are decimal,
// what cannot be read is told with what would work, a flag that is given twice is told, - is
// standard output, and a command that does not exist is named with the one that was meant.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "spool/models/training/settings/setting.h"

namespace spool {

// The words of a command line after the program's name.  CLI11 would read a path such as [a,b] as a
// list: the commands that take several paths get ./[a,b] instead, which is the same file.  What
// `train --resume DIR` gets is --resume --out DIR.
std::vector<std::string> command_words(int argc, const char* const* argv);

// Gives every option of the command a check that its values are not empty, and of how its numbers
// are written.
void check_values(CLI::App& command);

// What is wrong with words such as --lr=, of which CLI11 would take the next word for the value, or
// --dry-run=x; empty if nothing is.
std::string fault_of_words(const CLI::App& app, const std::vector<std::string>& words);

// The check of a setting's text, for CLI11.
CLI::Validator validator(const TextCheck&);

// "--lr is given 2 times; the last one counts: 0.01", for each flag of the command that takes one
// value and was given different ones.
std::vector<std::string> repeated_flags(const CLI::App& command);

// "there is no command trian; did you mean train?" if the first word of the command line should be
// a command and is none; empty otherwise.
std::string wrong_command(const CLI::App& app, const std::string& first_word);

}  // namespace spool
