#pragma once

// Reads and writes safetensors: eight bytes with the header's length; the header, in JSON, with
// each tensor's type, shape and offsets; and the tensors' bytes, without holes.
//
//   SafetensorsWriter file(path, {{"a", {Shape{2, 3}, DType::f32}}}, {{"step", "100"}});
//   file.write(file.tensors()[0], 0, bytes);
//   file.finish();
//
// The reader enforces the format's rules: no holes, no overlaps, no header above 100 MB.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spool/models/formats/stored_tensors.h"

namespace spool {

using Metadata = std::map<std::string, std::string>;

class SafetensorsWriter : public TensorWriter {
 public:
  // Writes the header.  Names must be unique.
  SafetensorsWriter(const std::filesystem::path&, std::vector<StoredTensor> tensors,
                    const Metadata& = {});
};

class SafetensorsReader : public TensorReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path&);

  const Metadata& metadata() const { return metadata_; }

 private:
  struct Parsed;
  explicit SafetensorsReader(Parsed);
  friend TensorFileStart open_safetensors(const std::filesystem::path&);

  Metadata metadata_;
};

// Opens and checks one of several files, as the reader does.
TensorFileStart open_safetensors(const std::filesystem::path&);

// A model in several files of a folder, its shards, with an index:
//   {"metadata": {"total_size": BYTES}, "weight_map": {"TENSOR": "SHARD", ...}}
// The reader opens the index; it refuses one that does not list each shard's tensors, or names a
// file outside the folder.  Constants (constant_tensors.h) may be missing from either.
class ShardedSafetensorsReader : public TensorReader {
 public:
  explicit ShardedSafetensorsReader(const std::filesystem::path& index);
};

}  // namespace spool
