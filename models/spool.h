#pragma once

// The commands of the program `spool`, each in a file of its own.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace spool {

// Adds the command to the program; what it returns does the work and returns the exit code.
std::function<int()> add_train(CLI::App&);
std::function<int()> add_generate(CLI::App&);

// A CLI11 validator: the text is an amount of memory.
CLI::Validator memory_amount();

}  // namespace spool
