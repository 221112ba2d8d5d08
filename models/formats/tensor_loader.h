#pragma once

// Tensors from a file into memory of a device, by pieces that several threads read, convert, turn,
// and put where they belong.

#include <span>

#include "spool/models/formats/stored_tensors.h"
#include "spool/runtime/tensor.h"

namespace spool {

// What has been found to fit: the shapes agree, and one type can become the other.
struct TensorLoad {
  const StoredTensor* from = nullptr;
  Tensor to = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

void load_in_pieces(const TensorReader&, std::span<const TensorLoad>);

}  // namespace spool
