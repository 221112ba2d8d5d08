#pragma once

// Tensors of a device to and from files, by name, through a few MiB of host memory however large
// they are.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "spool/models/formats/safetensors.h"
#include "spool/runtime/tensor.h"

namespace spool {

struct NamedTensor {
  std::string name;
  Tensor tensor = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

// Into a file that was begun for them, which it finishes.
void save_tensors(TensorWriter&, std::span<const NamedTensor>);
// As a safetensors file.
void save_tensors(const std::filesystem::path&, std::span<const NamedTensor>, const Metadata& = {});

// Fills the tensors, converting between floating types where the file has another one.  Throws,
// before any is touched, if one is missing or has another shape, or if the file has a tensor that
// was not asked for and is not `ignored`.
void load_tensors(const TensorReader&, std::span<const NamedTensor>,
                  const std::function<bool(std::string_view name)>& ignored = {});

}  // namespace spool
