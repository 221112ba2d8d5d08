#pragma once

// Tensors from a file into memory of a device, by bands: while one round of bands goes to the
// device, others read, turn and convert the next.

#include <span>

#include "spool/models/stored_tensors.h"
#include "spool/runtime/tensor.h"

namespace spool {

// What has been found to fit: the shapes agree, and one type can become the other.
struct TensorLoad {
  const StoredTensor* from = nullptr;
  Tensor to = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

void load_in_bands(const TensorReader&, std::span<const TensorLoad>);

}  // namespace spool
