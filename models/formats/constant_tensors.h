#pragma once

// Tensors that some files have besides a model's parameters: what they say follows from the model's
// configuration, so they are not read.

#include <string_view>

namespace spool {

// Whether a tensor of this name is a causal mask, or has the speeds of rotary positions.
bool is_constant_tensor(std::string_view name);

}  // namespace spool
