// Public: one of the headers of docs/public-headers.md.
#pragma once

#include <optional>

#include "spool/runtime/tensor.h"

namespace spool {

// A tensor that training changes.  Its address must not change while a tape knows it.
struct Parameter {
  Name name = "parameter";
  Tensor data = {};
  // Absent until backward first writes it, then added to, until the optimizer frees it.  f32 where
  // it receives more than one contribution a step (micro-batches, ties, chunks), else of the type
  // of the data.
  Tensor grad = {};
  bool trainable = true;
  // Its place among all parameters of its model, for which random bits are drawn; absent unless it
  // is one of Parameters.
  std::optional<uint32_t> number = {};
};

}  // namespace spool
