#pragma once

// Rules for the command line of every command: no value is empty, numbers are decimal, a value that
// cannot be read and a flag that is given twice are reported, - is standard output, and for an
// unknown command the most similar one is suggested.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "spool/models/training/settings/setting.h"

namespace spool {

// The words of a command line after the program's name.  CLI11 would read a path such as [a,b] as a
// list, so commands that take several paths get ./[a,b] instead, which is the same file.  `train
// --resume DIR` becomes --resume --out DIR.
std::vector<std::string> command_words(int argc, const char* const* argv);

// Adds checks to every option of the command: values must not be empty, and numbers decimal.
void check_values(CLI::App& command);

// What is wrong with words such as --dry-run=x, or --lr=, for which CLI11 would take the next word
// as the value; empty if nothing is.
std::string fault_of_words(const CLI::App& app, const std::vector<std::string>& words);

// The check of a setting's text, for CLI11.
CLI::Validator validator(const TextCheck&);

// Messages such as "--lr is given 2 times; the last one counts: 0.01", for flags that take one
// value and were given different ones.
std::vector<std::string> repeated_flags(const CLI::App& command);

// "there is no command trian; did you mean train?" if the first word should be a command and is
// not; else empty.
std::string wrong_command(const CLI::App& app, const std::string& first_word);

}  // namespace spool
