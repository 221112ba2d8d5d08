#pragma once

// Reads a file of which each line is a JSON object (JSONL).

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

// Reads the file in blocks.
class JsonLines {
 public:
  static constexpr std::string_view utf8_mark = "\xef\xbb\xbf";  // passed over

  explicit JsonLines(const std::filesystem::path& path) : path_(path), file_(File::open(path)) {}

  // The next line, whose name in errors is "FILE, line 3"; nothing at the end.  Empty lines
  // are passed over.  Throws if it is no JSON object.
  std::optional<JsonField> next();

  // The next line, whatever it has.
  std::optional<std::string> next_line();
  uint64_t bytes_read() const { return at_; }

 private:
  void read_block();

  std::filesystem::path path_;
  File file_;
  uint64_t at_ = 0;
  std::string held_ = {};
  size_t begin_ = 0, searched_ = 0;  // of the next line in it, and how far it has no end
  int64_t number_ = 0;
};

}  // namespace spool
