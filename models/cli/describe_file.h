#pragma once

// Says what a file or a directory is that Spool reads or writes: a run, a checkpoint, a model, a
// plan, a shard of tokens and others.  Files of JSON are told by a member that only their kind has,
// or by their name.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace spool {

struct FileDescription {
  std::string what = {};                                          // "a checkpoint, of step 40"
  std::vector<std::pair<std::string, std::string>> details = {};  // a name, and its value
};

// Throws if it is not there, is damaged, or is nothing that Spool knows.
FileDescription describe_file(const std::filesystem::path&);

}  // namespace spool
