#pragma once

// A model's parameters, or what is parallel to them, as tensors of a file (tensor_file.h).

#include <string_view>
#include <vector>

#include "spool/autograd/parameters.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

// Tensors parallel to the parameters (their data, or a row of an optimizer's state), each under the
// parameter's name behind a prefix.  Absent ones are left out.
std::vector<NamedTensor> named_tensors(const Parameters&,
                                       const std::vector<TensorContents>& parallel,
                                       std::string_view prefix = {});
std::vector<NamedTensor> named_tensors(const Parameters&);

}  // namespace spool
