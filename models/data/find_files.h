#pragma once

// The files a user means with paths and patterns.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace spool {

// The files that paths and glob(3) patterns name, in the order of the patterns and sorted within
// each, no file twice.  What a pattern matches may be a directory or empty and is passed over; what
// is named outright must be a file with something in it.  Throws where a pattern names nothing.
std::vector<std::filesystem::path> find_files(std::span<const std::string> patterns);

// The text that is always there: the documents and sources of the repository at `root`, sorted.
std::vector<std::filesystem::path> default_texts(const std::filesystem::path& root);

}  // namespace spool
