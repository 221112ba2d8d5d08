#pragma once

// Names a model's parameters, or tensors parallel to them, for a file (tensor_file.h).

#include <string_view>
#include <vector>

#include "spool/autograd/parameters.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

// The data of a parameter; of a part, the whole: it is read from the ranks that have parts, while
// they answer, and of what is written each keeps what it has.
TensorContents contents_of(const Parameter&);

// Tensors parallel to the parameters (their data, or one kind of optimizer state), each named after
// its parameter, with a prefix.  Absent ones are left out.
std::vector<NamedTensor> named_tensors(const Parameters&,
                                       const std::vector<TensorContents>& parallel,
                                       std::string_view prefix = {});
std::vector<NamedTensor> named_tensors(const Parameters&);

}  // namespace spool
