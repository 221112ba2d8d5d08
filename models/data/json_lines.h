#pragma once

// Reads a file of which each line is a JSON object (JSONL).

#include <filesystem>
#include <optional>
#include <string>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

// Reads the file in blocks; empty lines are passed over.
class JsonLines {
 public:
  explicit JsonLines(const std::filesystem::path& path) : path_(path), file_(File::open(path)) {}

  // The next line, whose name in errors is "FILE, line 3"; nothing at the end.  Throws if it is no
  // JSON object.
  std::optional<JsonField> next();

 private:
  std::optional<std::string> next_line();
  void read_block();

  std::filesystem::path path_;
  File file_;
  uint64_t at_ = 0;
  std::string held_ = {};
  size_t searched_ = 0;
  int64_t number_ = 0;
};

}  // namespace spool
