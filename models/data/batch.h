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
  // Of rows that several texts share: the place of each token in its text, and the first token of
  // its text in the row; (rows, T).  Empty: each row is one text.
  std::vector<int32_t> positions = {}, first = {};
  int64_t valid = 0;  // targets that are not ignored

  int64_t rows() const { return T ? static_cast<int64_t>(tokens.size()) / T : 0; }
  bool is_packed() const { return !positions.empty(); }
  // Resizes to `rows` rows of tokens 0, and ignores all targets.  Of packed rows each token is a
  // text of its own.
  void clear(int64_t rows, int64_t tokens_of_row, bool packed = false);
};

// The input of a model on its device.
struct BatchInput {
  Tensor tokens, targets;    // i32 (B, T)
  Tensor positions, firsts;  // of packed rows, as in a TokenBatch; absent: they are not packed

  BatchInput(int64_t batch, int64_t seq, Stream&, bool packed = false);
  // Copies rows [first, first + B) of the batch to the device.
  void upload(const TokenBatch&, int64_t first);
  // Uploads zeros in pieces of the same sizes, for rehearsals: the batch may be too large for the
  // host.
  void upload_placeholder();
};

}  // namespace spool
