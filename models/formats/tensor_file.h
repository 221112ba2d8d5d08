#pragma once

// Saves and loads a device's tensors by name, through a few MiB of host memory whatever their size.
// A large model is written as several files with a JSON index.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "spool/models/formats/safetensors.h"
#include "spool/models/formats/tensor_contents.h"

namespace spool {

struct NamedTensor {
  std::string name;
  TensorContents tensor = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

// Writes all tensors of the file and finishes it.
void save_tensors(TensorWriter&, std::span<const NamedTensor>);
// Writes a safetensors file.
void save_tensors(const std::filesystem::path&, std::span<const NamedTensor>, const Metadata& = {});

// Writes model.safetensors into a folder; or, if the tensors exceed `shard_bytes` bytes, an index
// and shards of at most that size, or of one tensor (see ShardedSafetensorsReader).
void save_model_tensors(const std::filesystem::path& folder, std::span<const NamedTensor>,
                        const Metadata&, uint64_t shard_bytes);
// The names of the files.
inline constexpr const char *weights_name = "model.safetensors",
                            *weights_index_name = "model.safetensors.index.json";

// A hash of names, types, shapes and values; it does not depend on where the tensors are.
uint64_t hash_of(std::span<const NamedTensor>);

// Fills the tensors, converting from other floating types.  Throws, before any is changed, if one
// is missing or has another shape, or if the file has a tensor that is neither listed nor
// `ignored`.  Throws on a finite element that overflows its tensor's type when it meets it.
void load_tensors(const TensorReader&, std::span<const NamedTensor>,
                  const std::function<bool(std::string_view name)>& ignored = {},
                  const FileProgress& = {});

}  // namespace spool
