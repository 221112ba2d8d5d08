#pragma once

// Finds values that are not finite in a file of tensors: one of them makes all that is computed
// from it worthless.  It reads the whole file, so it is asked when something has gone wrong.

#include "spool/models/formats/stored_tensors.h"

namespace spool {

// Throws an error that names the file, the first tensor with a value that is nan or infinite in
// f32, and its place there.  Tensors of whole numbers are left out.
void check_finite(const TensorReader&);

}  // namespace spool
