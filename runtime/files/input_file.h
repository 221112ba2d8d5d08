#pragma once

// A file of any size that is read piece by piece while other programs may write to it: it keeps the
// size and modification time it was opened with, to notice such writes.  A file that replaces it
// under its name does not affect it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "spool/runtime/files/file.h"

namespace spool {

class InputFile {
 public:
  // `name` is for messages.
  InputFile(File, std::string name);
  explicit InputFile(const std::filesystem::path& path)
      : InputFile(File::open(path), path.string()) {}

  const std::string& name() const { return name_; }
  // When it was opened, in bytes.
  uint64_t size() const { return begin_.size; }
  // Throws an error that says so if the file has become shorter.
  void read(uint64_t begin, std::span<std::byte> out) const;
  // Whether it was written to since it was opened.
  bool has_changed() const { return state() != begin_; }

 private:
  struct State {
    uint64_t size = 0;
    int64_t modified = 0;  // in nanoseconds
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const;

  File file_;
  std::string name_;
  State begin_;
};

}  // namespace spool
