#pragma once

// Finds the files that paths and patterns name.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace spool {

// The files that paths and glob(3) patterns name, in the order of the patterns, sorted within each,
// without repetitions.  A pattern skips directories and empty files; a path must name a file.
// Throws if a pattern matches no file.
std::vector<std::filesystem::path> find_files(std::span<const std::string> patterns);

// The documents and sources of Spool's repository at `root`, sorted: text that is always there.
std::vector<std::filesystem::path> default_texts(const std::filesystem::path& root);

}  // namespace spool
