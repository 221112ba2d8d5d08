#pragma once

// Work that runs beside a stream, which is to wait for it before it reads the output.

#include "spool/runtime/tensor.h"

namespace spool {

struct Begun {
  Tensor output = {}, workspace = {};
  Event done = {};
};

}  // namespace spool
