#pragma once

#include <string>

#include "spool/runtime/cuda/nccl.h"

namespace spool::testing {

// The bytes of an id that the library makes for a communicator, through the functions as NCCL's
// header declares them.  Throws what the library says if it makes none.
std::string unique_id(const Nccl&);

}  // namespace spool::testing
