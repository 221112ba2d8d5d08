#pragma once

// A batch of rows of tokens: on the host, where data is read into it, and on a device, as the input
// of a model.

#include <cstdint>
#include <vector>

#include "spool/runtime/tensor.h"

namespace spool {

// The target of a position that has no loss.
inline constexpr int32_t ignored_target = -100;

// Rows of tokens on the host.  Filling a batch again reuses its memory.
struct TokenBatch {
  int64_t T = 0;                                   // tokens per row
  std::vector<int32_t> tokens = {}, targets = {};  // (rows, T)
  int64_t valid = 0;                               // targets that are not ignored

  int64_t rows() const { return T ? static_cast<int64_t>(tokens.size()) / T : 0; }
  // Resizes to `rows` rows of tokens 0, and ignores all targets.
  void clear(int64_t rows, int64_t tokens_of_row);
};

// The input of a model on its device.
struct BatchInput {
  Tensor tokens, targets;  // i32 (B, T)

  BatchInput(int64_t batch, int64_t seq, Stream&);
  // Copies rows [first, first + B) of the batch to the device.
  void upload(const TokenBatch&, int64_t first);
  // Uploads zeros in pieces of the same sizes, for rehearsals: the batch may be too large for the
  // host.
  void upload_placeholder();
};

}  // namespace spool
