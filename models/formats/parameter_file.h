// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// A model's parameters in a safetensors file, each under its name.

#include <filesystem>

#include "spool/autograd/parameters.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

// Tensors parallel to the parameters (their data, or a row of an optimizer's state), each under the
// parameter's name behind a prefix.
std::vector<NamedTensor> named_tensors(const Parameters&, const std::vector<Tensor>& parallel,
                                       std::string_view prefix = {});
std::vector<NamedTensor> named_tensors(const Parameters&);

// Writes all parameters, in their own types.  Waits for the device.
void save_parameters(const std::filesystem::path&, const Parameters&, const Metadata& = {});
// Fills all parameters, converting from other floating types.  Throws, before any is changed, if
// the file lacks one, has one of another shape, or has a tensor that is not a parameter.
void load_parameters(const std::filesystem::path&, const Parameters&, const FileProgress& = {});

}  // namespace spool
