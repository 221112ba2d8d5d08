#pragma once

// Recognises tensors that some files have beside a model's parameters.  They follow from the
// model's configuration, so they are not read.

#include <string_view>

namespace spool {

// Whether a tensor of this name is a causal mask or has the frequencies of rotary positions.
bool is_constant_tensor(std::string_view name);

}  // namespace spool
