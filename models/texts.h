#pragma once

// Text files as training data: which files a user means, and what they hold as one sequence of
// bytes.  Files are mapped into memory read-only, so that data may be larger than memory.  A file
// must not shrink while it is open.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "spool/models/data.h"

namespace spool {

// The files that paths and glob(3) patterns name, in the order of the patterns and sorted within
// each, no file twice.  What a pattern matches may be a directory or empty and is passed over; what
// is named outright must be a file with something in it.  Throws where a pattern names nothing.
std::vector<std::filesystem::path> find_files(std::span<const std::string> patterns);

// The text that is always there: the documents and sources of the repository at `root`, sorted.
std::vector<std::filesystem::path> default_texts(const std::filesystem::path& root);

// Files end to end as one sequence in which a token is a byte.
Tokens open_texts(std::span<const std::filesystem::path> files);

}  // namespace spool
