#pragma once

// Tensors of a device to and from safetensors, by name, through a few MiB of host memory however
// large they are.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "spool/models/safetensors.h"
#include "spool/runtime/tensor.h"

namespace spool {

struct NamedTensor {
  std::string name;
  Tensor tensor = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

void save_tensors(const std::filesystem::path&, std::span<const NamedTensor>, const Metadata& = {});

// Fills the tensors, converting between floating dtypes where the file has another one.  Throws,
// before any is touched, if one is missing or has another shape, or if the file has a tensor that
// was not asked for and is not `ignored`.
void load_tensors(const SafetensorsReader&, std::span<const NamedTensor>,
                  const std::function<bool(std::string_view name)>& ignored = {});

}  // namespace spool
