#pragma once

// A batch of rows of tokens on a device, the input of a step.

#include <cstdint>
#include <functional>
#include <span>

#include "spool/runtime/tensor.h"

namespace spool {

// Writes row `index` of some data: fills both spans.
using Rows =
    std::function<void(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets)>;

struct BatchInput {
  Tensor tokens, targets;  // i32 (B, T)

  BatchInput(int64_t batch, int64_t seq, Stream&);
  // Copies rows [0, B) to the device, a few at a time: the host never has a whole large batch.
  void upload(const Rows&);
};

}  // namespace spool
