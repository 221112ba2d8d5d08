#pragma once

// The bytes of a file, mapped read-only, so that the file may be larger than memory.  It must not
// shrink while it is mapped.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "spool/runtime/files/file.h"

namespace spool {

class MappedFile {
 public:
  explicit MappedFile(const File&);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Lets the system drop bytes [0, end) from memory; they can still be read.
  void forget(size_t end) const;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace spool
