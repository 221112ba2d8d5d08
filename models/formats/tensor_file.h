#pragma once

// Saves and loads a device's tensors by name, through a few MiB of host memory whatever their size.
// Tensors of a large model are in several files, with an index, which is JSON.

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

// Writes all tensors of a file, and finishes it.
void save_tensors(TensorWriter&, std::span<const NamedTensor>);
// Writes a safetensors file.
void save_tensors(const std::filesystem::path&, std::span<const NamedTensor>, const Metadata& = {});

// Writes model.safetensors into a folder; or, if the tensors have more than `shard_bytes` bytes,
// shards of at most so many, or of one tensor, and their index (see ShardedSafetensorsReader).
void save_model_tensors(const std::filesystem::path& folder, std::span<const NamedTensor>,
                        const Metadata&, uint64_t shard_bytes);
// The names that this writes.
inline constexpr const char *weights_name = "model.safetensors",
                            *weights_index_name = "model.safetensors.index.json";

// A hash of the names, types, shapes and values, the same wherever the tensors are.
uint64_t hash_of(std::span<const NamedTensor>);

// Fills the tensors, converting from other floating types.  Throws, before any is changed, if one
// is missing or has another shape, or if the file has a tensor that is not listed and not
// `ignored`.  A finite element that is beyond the numbers of its tensor's type throws as it is met.
void load_tensors(const TensorReader&, std::span<const NamedTensor>,
                  const std::function<bool(std::string_view name)>& ignored = {},
                  const FileProgress& = {});

}  // namespace spool
