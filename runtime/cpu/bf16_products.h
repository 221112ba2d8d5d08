#pragma once

// Tells how products of bf16 are computed on this processor.

#include "spool/runtime/device.h"

namespace spool {

// By oneDNN, as far as its environment lets it; without oneDNN such products are those of f32.
Bf16Products bf16_products();

}  // namespace spool
