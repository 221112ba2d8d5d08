#pragma once

// Finds values in a file of tensors that are not finite, any of which spoils the result.  It reads
// the whole file, so it is only called after something has gone wrong.

#include "spool/models/formats/stored_tensors.h"

namespace spool {

// Throws an error that names the file, the first tensor with a value that is nan or infinite in
// f32, and the value's place.  Skips tensors of integers.
void check_finite(const TensorReader&);

}  // namespace spool
