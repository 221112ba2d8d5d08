#pragma once

// The safetensors format: eight bytes that say how long the header is, the header, which is JSON
// and says where each tensor's bytes are, and the bytes, with no holes between them.
//
//   SafetensorsWriter file(path, {{"a", {Shape{2, 3}, DType::f32}}}, {{"step", "100"}});
//   file.append(bytes);
//   file.finish();
//
// Both ways work by pieces, so that no tensor need ever be whole in host memory.  A reader that has
// been constructed has checked all the header says against the file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/file.h"
#include "spool/runtime/shape.h"

namespace spool {

struct StoredTensor {
  std::string name;
  Spec spec = {};
  uint64_t begin = 0;  // byte of the data where it starts; a writer works it out
};

using Metadata = std::map<std::string, std::string>;

class SafetensorsWriter {
 public:
  // Writes the header.  Names are unique.
  SafetensorsWriter(const std::filesystem::path&, std::vector<StoredTensor> tensors,
                    const Metadata& = {});

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // After all bytes written so far.
  void append(std::span<const std::byte> bytes);
  // Within one tensor, in any order; what append() adds afterwards presumes it was written whole.
  void write(const StoredTensor&, uint64_t begin, std::span<const std::byte> bytes);
  // Throws if bytes are missing.  A file that was not finished is refused by every reader, or lost
  // by a power cut.
  void finish();

 private:
  File file_;
  std::vector<StoredTensor> tensors_;
  uint64_t data_begin_ = 0, data_bytes_ = 0, written_ = 0;
};

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path&);

  const std::string& name() const { return file_.name(); }
  // In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  // Null where there is none of that name.
  const StoredTensor* find(std::string_view tensor) const;
  // Bytes [begin, begin + out.size()) of one tensor.
  void read(const StoredTensor&, uint64_t begin, std::span<std::byte> out) const;

 private:
  File file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  Metadata metadata_;
  uint64_t data_begin_ = 0;
};

}  // namespace spool
