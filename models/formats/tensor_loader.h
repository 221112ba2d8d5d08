#pragma once

// Loads tensors from a file into a device's memory, in pieces that several threads read, convert
// and transpose.

#include <span>

#include "spool/models/formats/stored_tensors.h"
#include "spool/models/formats/tensor_contents.h"

namespace spool {

// Shapes must agree, and types too, unless both are floating.
struct TensorLoad {
  const StoredTensor* from = nullptr;
  TensorContents to = {};
  bool transposed = false;  // a matrix that is (out, in) in memory and (in, out) in the file
};

void load_in_pieces(const TensorReader&, std::span<const TensorLoad>, const FileProgress& = {});

}  // namespace spool
