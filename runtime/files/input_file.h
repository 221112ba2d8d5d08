#pragma once

// A file that is read little by little while other programs may write to it: it knows its size and
// its time of modification at the beginning.  Files of any size are read, as nothing is kept in
// memory.  A file that another takes the name of stays what it was.

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
  // At the beginning, in bytes.
  uint64_t size() const { return begin_.size; }
  // Throws an error that says so if the file has become shorter.
  void read(uint64_t begin, std::span<std::byte> out) const;
  // Whether it was written to since the beginning.
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
